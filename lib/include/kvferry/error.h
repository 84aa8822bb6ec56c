/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Errors: a code that programs branch on, and one sentence with the numbers
 * that a person reads.
 *
 * Every function that can fail returns a negative `enum kvf_error` and, when it
 * was given a `struct kvf_err *`, fills in the sentence. A NULL `err` is allowed
 * everywhere. A `struct kvf_err` belongs to its caller and needs no clean-up.
 */
#ifndef KVFERRY_ERROR_H
#define KVFERRY_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

/** What went wrong. The numbers are part of the ABI and never change. */
enum kvf_error {
	KVF_OK = 0,
	KVF_E_INVAL = -1,        /**< an argument makes no sense by itself */
	KVF_E_CAPACITY = -2,     /**< more tokens than the source pages hold */
	KVF_E_LENGTH = -3,       /**< index arrays of unequal length */
	KVF_E_PREFIX = -4,       /**< prefix not on a virtual page boundary */
	KVF_E_DST_PAGES = -5,    /**< a needed destination page is not in the list */
	KVF_E_PAGE = -6,         /**< page id outside the pool */
	KVF_E_DUP_PAGE = -7,     /**< the same destination page twice */
	KVF_E_OVERFLOW = -8,     /**< a value or product past 32 or 64 bits */
	KVF_E_SHARDING = -9,     /**< size, rank or interleave out of range */
	KVF_E_GEOMETRY = -10,    /**< a declaration that does not fit its pool */
	KVF_E_MISMATCH = -11,    /**< row bytes, heads or dtype differ between sides */
	KVF_E_COVERAGE = -12,    /**< bytes that decode should hold have no source */
	KVF_E_STATE_LIST = -13,  /**< state index lists that must match differ */
	KVF_E_ORDER = -14,       /**< a gap or overlap between chunks */
	KVF_E_TOTAL = -15,       /**< the two sides state different totals */
	KVF_E_NOMEM = -16,       /**< out of ordinary memory */
	KVF_E_NOHUGE = -17,      /**< not enough free hugepages */
	KVF_E_AGAIN = -18,       /**< a ring or arena is full: poll, then try again */
	KVF_E_QUOTA = -19,       /**< past a limit of this endpoint */
	KVF_E_TIMEOUT = -20,     /**< a wait reached its limit */
	KVF_E_ABORTED = -21,     /**< one of the two sides aborted the room */
	KVF_E_PEER_DIED = -22,   /**< an endpoint of the room went away */
	KVF_E_ENGINE_GONE = -23, /**< kvferryd closed the connection or died */
	KVF_E_PROTO = -24,       /**< malformed message or ring entry */
	KVF_E_VERSION = -25,     /**< library and engine speak different versions */
	KVF_E_PERM = -26,        /**< not allowed */
	KVF_E_EXIST = -27,       /**< that room, rank or name is taken */
	KVF_E_NOENT = -28,       /**< no such room, file or device */
	KVF_E_DRIVER = -29,      /**< the copy driver asked for is not there */
	KVF_E_DEVICE = -30,      /**< a copy failed on its device */
	KVF_E_SYS = -31,         /**< a system call failed; the sentence has errno */
	KVF_E_KEY = -32,         /**< not returned: ends with different keys never meet, and nobody
				      learns that there was another one */
	KVF_E_POOL_LOST = -33,   /**< memory of a pool was taken away under the engine */
	KVF_E_BUSY = -34,        /**< copies may still touch it: wait until drained */
	KVF_E_VERIFY = -35,      /**< bytes read back after the copy differ from the source's */
};

/** A failure: code and one NUL-terminated sentence in `name=value` style. */
struct kvf_err {
	int code; /**< `enum kvf_error` */
	char text[252];
};

/** The code's name without prefix, e.g. "CAPACITY". Never NULL. Thread-safe. */
const char *kvf_error_name(int code);

#ifdef __cplusplus
}
#endif
#endif
