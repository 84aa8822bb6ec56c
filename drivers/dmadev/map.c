/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <rte_bus.h>
#include <rte_common.h>
#include <rte_config.h>
#include <rte_errno.h>
#include <rte_memory.h>

#include "base/err.h"
#include "drivers/dmadev/dmadev.h"

static int
any_bus(const struct rte_bus *bus, const void *data)
{
	(void)bus;
	(void)data;
	return 0;
}

/* "0000:6a:01.0-q0" is a queue of the device "0000:6a:01.0"; others carry their device's name. */
static bool
names_device(const char *dma_name, const char *dev_name)
{
	size_t len = strlen(dev_name);

	return strncmp(dma_name, dev_name, len) == 0 &&
	       (dma_name[len] == '\0' || dma_name[len] == '-');
}

struct rte_device *
dmadev_find_rte_device(const char *dma_name, bool *pci)
{
	struct rte_device *dev, *best = NULL;
	struct rte_dev_iterator it;
	struct rte_bus *bus = NULL;
	char filter[80];

	while ((bus = rte_bus_find(bus, any_bus, NULL)) != NULL) {
		snprintf(filter, sizeof(filter), "bus=%s", rte_bus_name(bus));
		RTE_DEV_FOREACH(dev, filter, &it)
		{
			if (!rte_dev_is_probed(dev) || !names_device(dma_name, rte_dev_name(dev)))
				continue;
			if (best != NULL && strlen(rte_dev_name(dev)) <= strlen(rte_dev_name(best)))
				continue;
			best = dev;
			*pci = strcmp(rte_bus_name(bus), "pci") == 0;
		}
	}
	return best;
}

static int
unmap_devices(struct kvf_copy_drv *drv, struct dmadev_region *r, struct kvf_err *err)
{
	int ret = 0;

	while (r->num_mapped > 0) {
		struct dmadev_device *dev = &drv->devices[r->mapped[--r->num_mapped]];

		if (rte_dev_dma_unmap(dev->rte, r->base, (uintptr_t)r->base, r->length) != 0 &&
			ret == 0)
			ret = kvf_fail(err, KVF_E_DEVICE,
				"cannot unmap a region from DMA device name=%s: base=%p "
				"length=%" PRIu64 ": %s",
				dev->name, r->base, r->length, rte_strerror(rte_errno));
	}
	return ret;
}

static int
map_devices(struct kvf_copy_drv *drv, struct dmadev_region *r, struct kvf_err *err)
{
	bool pci_done = false;
	uint32_t i, j;

	for (i = 0; i < drv->num_devices; i++) {
		struct dmadev_device *dev = &drv->devices[i];

		/* Queues of one device share its mapping; so do all PCI devices, which live in
		 * one VFIO container: it would record a second mapping and not undo it. */
		for (j = 0; j < i && drv->devices[j].rte != dev->rte; j++)
			;
		if (dev->rte == NULL || j < i || (dev->pci && pci_done))
			continue;
		if (rte_dev_dma_map(dev->rte, r->base, (uintptr_t)r->base, r->length) == 0) {
			r->mapped[r->num_mapped++] = i;
			pci_done |= dev->pci;
			continue;
		}
		/* A bus without mappings is right only for a device that does without. */
		if (rte_errno == ENOTSUP && dev->sva && !dev->pci)
			continue;
		return kvf_fail(err, KVF_E_DEVICE,
			"cannot map a region for DMA device name=%s: base=%p length=%" PRIu64
			": %s",
			dev->name, r->base, r->length, rte_strerror(rte_errno));
	}
	return 0;
}

static int
register_region(struct kvf_copy_drv *drv, void *base, uint64_t length, uint64_t page_size,
	struct kvf_err *err)
{
	struct dmadev_region *r;

	/* DPDK itself refuses only the very same region twice. */
	for (r = TAILQ_FIRST(&drv->regions); r != NULL; r = TAILQ_NEXT(r, next)) {
		uintptr_t start = (uintptr_t)base, other = (uintptr_t)r->base;

		if (start < other + r->length && other < start + length)
			return kvf_fail(err, KVF_E_EXIST,
				"the region overlaps one that is mapped: base=%p length=%" PRIu64
				" mapped base=%p length=%" PRIu64,
				base, length, r->base, r->length);
	}
	if (rte_extmem_register(base, length, NULL, 0, page_size) == 0)
		return 0;
	if (rte_errno == ENOSPC)
		return kvf_fail(err, KVF_E_QUOTA,
			"DPDK cannot register one more region: regions=%u, limit "
			"RTE_MAX_MEMSEG_LISTS=%u less those of EAL itself",
			drv->num_regions, RTE_MAX_MEMSEG_LISTS);
	if (rte_errno == EEXIST)
		return kvf_fail(err, KVF_E_EXIST,
			"the region is registered with DPDK already: base=%p length=%" PRIu64, base,
			length);
	return kvf_fail(err, KVF_E_DEVICE,
		"DPDK cannot register a region: base=%p length=%" PRIu64 " page_size=%" PRIu64
		": %s",
		base, length, page_size, rte_strerror(rte_errno));
}

int
dmadev_map(struct kvf_copy_drv *drv, void *base, uint64_t length, uint64_t page_size, void **handle,
	struct kvf_err *err)
{
	struct dmadev_region *r;
	int ret;

	if (base == NULL || length == 0 || !rte_is_power_of_2(page_size) ||
		(uintptr_t)base % page_size != 0 || length % page_size != 0)
		return kvf_fail(err, KVF_E_INVAL,
			"a region must start and end on a page: base=%p length=%" PRIu64
			" page_size=%" PRIu64,
			base, length, page_size);
	r = calloc(1, sizeof(*r) + drv->num_devices * sizeof(r->mapped[0]));
	if (r == NULL)
		return kvf_fail(err, KVF_E_NOMEM, "no memory to map a region");
	r->base = base;
	r->length = length;
	ret = register_region(drv, base, length, page_size, err);
	if (ret != 0)
		goto out_free;
	ret = map_devices(drv, r, err);
	if (ret != 0)
		goto out_unregister;
	TAILQ_INSERT_TAIL(&drv->regions, r, next);
	drv->num_regions++;
	*handle = r;
	return 0;

out_unregister:
	unmap_devices(drv, r, NULL);
	rte_extmem_unregister(base, length);
out_free:
	free(r);
	return ret;
}

int
dmadev_unmap(struct kvf_copy_drv *drv, void *handle, struct kvf_err *err)
{
	struct dmadev_region *r = handle;
	int ret;

	/* Everything is undone as far as it goes; the first failure is told. */
	ret = unmap_devices(drv, r, err);
	if (rte_extmem_unregister(r->base, r->length) != 0 && ret == 0)
		ret = kvf_fail(err, KVF_E_DEVICE,
			"DPDK cannot unregister a region: base=%p length=%" PRIu64 ": %s", r->base,
			r->length, rte_strerror(rte_errno));
	TAILQ_REMOVE(&drv->regions, r, next);
	drv->num_regions--;
	free(r);
	return ret;
}
