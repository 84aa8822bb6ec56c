/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies on any DMA device that EAL probed: Intel DSA and IOAT on real hosts, dma_skeleton in
 * tests. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_dmadev.h>
#include <rte_eal.h>
#include <rte_errno.h>

#include "base/err.h"
#include "drivers/dmadev/dmadev.h"

#define NEEDED_CAPA (RTE_DMA_CAPA_MEM_TO_MEM | RTE_DMA_CAPA_OPS_COPY)
#define HOW_TO_ADD                                                                                 \
	"pass --vdev=dma_skeleton0 to EAL after --, or bind a DSA or IOAT device to vfio-pci"

/* Appends ", name"; ends with "..." where the room does not do. */
static void
append_name(char *text, size_t size, const char *name)
{
	size_t len = strlen(text);

	if (len + strlen(name) + sizeof(", , ...") <= size)
		snprintf(text + len, size - len, "%s%s", len > 0 ? ", " : "", name);
	else if (len < 3 || strcmp(text + len - 3, "...") != 0)
		snprintf(text + len, size - len, ", ...");
}

static void
present_names(char *text, size_t size)
{
	struct rte_dma_info info;
	int16_t id;

	text[0] = '\0';
	RTE_DMA_FOREACH_DEV(id)
	{
		if (rte_dma_info_get(id, &info) == 0)
			append_name(text, size, info.dev_name);
	}
	if (text[0] == '\0')
		snprintf(text, size, "none");
}

static bool
can_copy(int16_t id)
{
	struct rte_dma_info info;

	return rte_dma_info_get(id, &info) == 0 && (info.dev_capa & NEEDED_CAPA) == NEEDED_CAPA;
}

static int
find_named(const char *name, int len, struct kvf_err *err)
{
	char present[80];

	if (len > 0 && len < RTE_DEV_NAME_MAX_LEN) {
		char text[RTE_DEV_NAME_MAX_LEN];
		struct rte_dma_info info;
		int16_t id;

		snprintf(text, sizeof(text), "%.*s", len, name);
		RTE_DMA_FOREACH_DEV(id)
		{
			if (rte_dma_info_get(id, &info) == 0 && strcmp(info.dev_name, text) == 0)
				return id;
		}
	}
	present_names(present, sizeof(present));
	return kvf_fail(err, KVF_E_DRIVER, "no DMA device name=%.*s; present: %s; " HOW_TO_ADD,
		RTE_MIN(len, 48), name, present);
}

/* ids must have room for rte_dma_count_avail(). */
static int
select_devices(const char *args, int16_t *ids, uint32_t *num, struct kvf_err *err)
{
	int len;

	*num = 0;
	if (args == NULL) {
		int16_t id;

		RTE_DMA_FOREACH_DEV(id)
		{
			if (can_copy(id))
				ids[(*num)++] = id;
		}
		if (*num == 0) {
			char present[80];

			present_names(present, sizeof(present));
			return kvf_fail(err, KVF_E_DRIVER,
				"no DMA device copies memory to memory; present: %s; " HOW_TO_ADD,
				present);
		}
		return 0;
	}
	for (;; args += len + 1) {
		uint32_t i;
		int ret;

		len = (int)strcspn(args, ",");
		ret = find_named(args, len, err);
		if (ret < 0)
			return ret;
		if (!can_copy((int16_t)ret))
			return kvf_fail(err, KVF_E_DRIVER,
				"DMA device name=%.*s cannot copy memory to memory", len, args);
		for (i = 0; i < *num; i++) {
			if (ids[i] == ret)
				return kvf_fail(err, KVF_E_DRIVER,
					"DMA device name=%.*s is named twice", len, args);
		}
		ids[(*num)++] = (int16_t)ret;
		if (args[len] == '\0')
			return 0;
	}
}

/* A power of two where the device's limits have one: some devices take nothing else. */
static uint16_t
choose_desc(const struct rte_dma_info *info)
{
	uint32_t n = RTE_MIN((uint32_t)info->max_desc, DMADEV_DESC);

	n = rte_align32prevpow2(n);
	if (n >= info->min_desc)
		return (uint16_t)n;
	n = rte_align32pow2(info->min_desc);
	return n <= info->max_desc ? (uint16_t)n : info->min_desc;
}

static int
start_device(struct dmadev_device *dev, struct kvf_err *err)
{
	struct rte_dma_conf conf = {.nb_vchans = 1};
	struct rte_dma_vchan_conf vconf = {.direction = RTE_DMA_DIR_MEM_TO_MEM};
	struct rte_dma_info info;
	const char *step = "ask";
	int ret;

	ret = rte_dma_info_get(dev->id, &info);
	if (ret != 0)
		goto out;
	snprintf(dev->name, sizeof(dev->name), "%s", info.dev_name);
	dev->numa_node = info.numa_node;
	dev->sva = (info.dev_capa & RTE_DMA_CAPA_SVA) != 0;
	dev->rte = dmadev_find_rte_device(dev->name, &dev->pci);
	if (dev->rte == NULL && !dev->sva)
		return kvf_fail(err, KVF_E_DRIVER,
			"DMA device name=%s needs memory mapped and its bus cannot be found",
			dev->name);
	vconf.nb_desc = choose_desc(&info);
	step = "configure";
	ret = rte_dma_configure(dev->id, &conf);
	if (ret != 0)
		goto out;
	step = "set up a channel of";
	ret = rte_dma_vchan_setup(dev->id, DMADEV_VCHAN, &vconf);
	if (ret != 0)
		goto out;
	step = "start";
	ret = rte_dma_start(dev->id);
	if (ret != 0)
		goto out;
	dev->started = true;
	return 0;
out:
	return kvf_fail(err, KVF_E_DRIVER, "cannot %s DMA device name=%s id=%d nb_desc=%u: %s",
		step, dev->name, dev->id, vconf.nb_desc, rte_strerror(-ret));
}

static void
dmadev_close(struct kvf_copy_drv *drv)
{
	uint32_t i;

	if (drv == NULL)
		return;
	/* Stopped, not rte_dma_close()d: a closed device is gone for good, a stopped one opens
	 * again. */
	for (i = 0; i < drv->num_devices; i++) {
		if (drv->devices[i].started)
			rte_dma_stop(drv->devices[i].id);
	}
	while (!TAILQ_EMPTY(&drv->regions))
		dmadev_unmap(drv, TAILQ_FIRST(&drv->regions), NULL);
	free(drv);
}

static int
dmadev_open(const char *args, struct kvf_copy_drv **out, struct kvf_copy_caps *caps,
	struct kvf_err *err)
{
	char names[sizeof(caps->detail)] = "";
	struct kvf_copy_drv *drv;
	uint32_t i, num;
	int16_t *ids;
	int ret;

	if (rte_eal_iova_mode() != RTE_IOVA_VA)
		return kvf_fail(err, KVF_E_DRIVER,
			"DMA on pools needs virtual addresses as IO addresses: iova_mode=%s; "
			"initialise EAL with --iova-mode=va",
			rte_eal_iova_mode() == RTE_IOVA_PA ? "pa" : "unset");
	ids = calloc(rte_dma_count_avail() + 1u, sizeof(*ids));
	if (ids == NULL)
		return kvf_fail(err, KVF_E_NOMEM, "no memory for a list of DMA devices");
	ret = select_devices(args, ids, &num, err);
	if (ret != 0)
		goto out;
	drv = calloc(1, sizeof(*drv) + num * sizeof(drv->devices[0]));
	if (drv == NULL) {
		ret = kvf_fail(err, KVF_E_NOMEM, "no memory for DMA devices: devices=%u", num);
		goto out;
	}
	TAILQ_INIT(&drv->regions);
	drv->num_devices = num;
	for (i = 0; i < num; i++) {
		drv->devices[i].id = ids[i];
		ret = start_device(&drv->devices[i], err);
		if (ret != 0) {
			dmadev_close(drv);
			goto out;
		}
		append_name(names, sizeof(names), drv->devices[i].name);
	}
	memset(caps, 0, sizeof(*caps));
	caps->max_channels = num;
	caps->channel_depth = DMADEV_DEPTH;
	snprintf(caps->detail, sizeof(caps->detail), "%s", names);
	*out = drv;
out:
	free(ids);
	return ret;
}

const struct kvf_copy_ops kvf_copy_dmadev = {
	.name = "dmadev",
	.open = dmadev_open,
	.close = dmadev_close,
	.map = dmadev_map,
	.unmap = dmadev_unmap,
	.channel_open = dmadev_channel_open,
	.channel_close = dmadev_channel_close,
	.submit = dmadev_submit,
	.poll = dmadev_poll,
	.counters = dmadev_counters,
};
