/* Attributes of kernel nodes. Only the cooperative attribute has an effect; the others are stored and
 * returned. */
#include <stdlib.h>
#include <string.h>

#include "soft/cuda/graph.h"

static bool is_known(CUlaunchAttributeID id)
{
	switch (id) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
	case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		return true;
	default:
		return false;
	}
}

static struct attribute *attribute_find(const struct node *node, CUlaunchAttributeID id)
{
	for (size_t i = 0; i < node->attribute_count; i++)
		if (node->attributes[i].id == id)
			return &node->attributes[i];
	return NULL;
}

static CUresult attribute_keep(struct node *node, CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
	struct attribute *attribute = attribute_find(node, id), *more;

	if (attribute) {
		attribute->value = *value;
		return CUDA_SUCCESS;
	}
	more = realloc(node->attributes, (node->attribute_count + 1) * sizeof(*more));
	if (!more)
		return CUDA_ERROR_OUT_OF_MEMORY;
	node->attributes = more;
	more[node->attribute_count++] = (struct attribute){ .id = id, .value = *value };
	return CUDA_SUCCESS;
}

CUresult node_set_attribute(struct node *node, CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
	unsigned cluster;

	switch (id) {
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		if (value->cooperative != 0 && value->cooperative != 1)
			return CUDA_ERROR_INVALID_VALUE;
		node->op.kernel.is_cooperative = value->cooperative;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: /* clusters are not supported */
		cluster = value->clusterDim.x * value->clusterDim.y * value->clusterDim.z;
		return cluster > 1 ? CUDA_ERROR_NOT_SUPPORTED : attribute_keep(node, id, value);
	case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE: /* updates by kernels are not supported */
		return value->deviceUpdatableKernelNode.deviceUpdatable ? CUDA_ERROR_NOT_SUPPORTED
									: CUDA_SUCCESS;
	default:
		return attribute_keep(node, id, value);
	}
}

static void attribute_get(const struct node *node, CUlaunchAttributeID id, CUlaunchAttributeValue *value)
{
	const struct attribute *attribute = attribute_find(node, id);

	memset(value, 0, sizeof(*value));
	if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
		value->cooperative = node->op.kernel.is_cooperative;
	else if (attribute)
		*value = attribute->value;
	else if (id == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP)
		value->memSyncDomainMap.remote = 1;
}

static CUresult kernel_node_find(CUgraphNode handle, struct node **node)
{
	CUresult result = node_find(handle, node);

	if (!result && (*node)->op.kind != OP_KERNEL)
		result = CUDA_ERROR_INVALID_VALUE;
	return result;
}

EXPORT CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID attr,
					      CUkernelNodeAttrValue *value)
{
	struct node *node;
	CUresult result;

	ENTER();
	result = value && is_known(attr) ? kernel_node_find(handle, &node) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		attribute_get(node, attr, value);
	LEAVE(result);
}

EXPORT CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID attr,
					      const CUkernelNodeAttrValue *value)
{
	struct node *node;
	CUresult result;

	ENTER();
	result = value && is_known(attr) ? kernel_node_find(handle, &node) : CUDA_ERROR_INVALID_VALUE;
	if (!result)
		result = node_set_attribute(node, attr, value);
	LEAVE(result);
}

EXPORT CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
	struct node *to, *from;
	CUresult result;

	ENTER();
	result = kernel_node_find(dst, &to);
	if (!result)
		result = kernel_node_find(src, &from);
	if (result)
		LEAVE(result);
	if (to == from)
		LEAVE(CUDA_SUCCESS);
	to->attribute_count = 0;
	to->op.kernel.is_cooperative = from->op.kernel.is_cooperative;
	for (size_t i = 0; i < from->attribute_count && !result; i++)
		result = attribute_keep(to, from->attributes[i].id, &from->attributes[i].value);
	LEAVE(result);
}
