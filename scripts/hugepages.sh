#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs a command with more hugepages, and gives them back when it has ended, whatever ended it.
# Shell traps and wait lose signals that come at the wrong moment; hence the other file.
set -eu -o pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if command -v python3 >/dev/null; then
	exec python3 "$here/hugepages.py" "$@"
fi
if [ "${1:-}" != with ]; then
	echo "${0##*/}: needs python3" >&2
	exit 2
fi
while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
if [ $# -lt 2 ]; then
	echo "${0##*/}: no command: ${0##*/} with N -- COMMAND" >&2
	exit 2
fi
shift
echo "${0##*/}: WARNING: python3 is missing: cannot take hugepages; running WITHOUT." >&2
KVFERRY_HUGEPAGES=0 exec "$@"
