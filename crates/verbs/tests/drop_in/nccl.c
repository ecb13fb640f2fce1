/*
 * Looks for the library and devices like NCCL's InfiniBand plug-in: looks up every function by name and version with
 * dlvsym(3), and accepts a device if its port is active and its link layer is InfiniBand or Ethernet.
 *
 * Prints "device NAME would be used" for each device. Fails if a function is missing, or if there is no device.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>

static const char *const FUNCTIONS[][2] = {
	{ "ibv_get_device_list", "IBVERBS_1.1" }, { "ibv_free_device_list", "IBVERBS_1.1" },
	{ "ibv_get_device_name", "IBVERBS_1.1" }, { "ibv_open_device", "IBVERBS_1.1" },
	{ "ibv_close_device", "IBVERBS_1.1" },    { "ibv_get_async_event", "IBVERBS_1.1" },
	{ "ibv_ack_async_event", "IBVERBS_1.1" }, { "ibv_query_device", "IBVERBS_1.1" },
	{ "ibv_query_port", "IBVERBS_1.1" },      { "ibv_query_gid", "IBVERBS_1.1" },
	{ "ibv_query_qp", "IBVERBS_1.1" },        { "ibv_alloc_pd", "IBVERBS_1.1" },
	{ "ibv_dealloc_pd", "IBVERBS_1.1" },      { "ibv_reg_mr", "IBVERBS_1.1" },
	{ "ibv_reg_mr_iova2", "IBVERBS_1.8" },    { "ibv_reg_dmabuf_mr", "IBVERBS_1.12" },
	{ "ibv_dereg_mr", "IBVERBS_1.1" },        { "ibv_create_cq", "IBVERBS_1.1" },
	{ "ibv_destroy_cq", "IBVERBS_1.1" },      { "ibv_create_qp", "IBVERBS_1.1" },
	{ "ibv_modify_qp", "IBVERBS_1.1" },       { "ibv_destroy_qp", "IBVERBS_1.1" },
	{ "ibv_fork_init", "IBVERBS_1.1" },       { "ibv_event_type_str", "IBVERBS_1.1" },
	{ "ibv_query_ece", "IBVERBS_1.10" },      { "ibv_set_ece", "IBVERBS_1.10" },
};

int main(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW);
	struct ibv_device **(*list)(int *);
	const char *(*name)(struct ibv_device *);
	struct ibv_context *(*open)(struct ibv_device *);
	int (*device)(struct ibv_context *, struct ibv_device_attr *);
	int (*port)(struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *);
	int (*fork_init)(void);
	struct ibv_device **all;
	int count = 0, used = 0;

	if (!library)
		return fprintf(stderr, "%s\n", dlerror()), 1;
	for (size_t i = 0; i < sizeof(FUNCTIONS) / sizeof(FUNCTIONS[0]); i++)
		if (!dlvsym(library, FUNCTIONS[i][0], FUNCTIONS[i][1]))
			return fprintf(stderr, "no %s@%s\n", FUNCTIONS[i][0], FUNCTIONS[i][1]), 1;
	list = (struct ibv_device **(*)(int *))dlvsym(library, "ibv_get_device_list", "IBVERBS_1.1");
	name = (const char *(*)(struct ibv_device *))dlvsym(library, "ibv_get_device_name", "IBVERBS_1.1");
	open = (struct ibv_context *(*)(struct ibv_device *))dlvsym(library, "ibv_open_device", "IBVERBS_1.1");
	device = (int (*)(struct ibv_context *, struct ibv_device_attr *))dlvsym(library, "ibv_query_device", "IBVERBS_1.1");
	port = (int (*)(struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *))dlvsym(library, "ibv_query_port", "IBVERBS_1.1");
	fork_init = (int (*)(void))dlvsym(library, "ibv_fork_init", "IBVERBS_1.1");
	if (fork_init())
		return fprintf(stderr, "ibv_fork_init fails\n"), 1;
	all = list(&count);
	for (int i = 0; all && i < count; i++) {
		struct ibv_context *context = open(all[i]);
		struct ibv_device_attr attributes;
		struct ibv_port_attr state = { 0 };

		/* Accept only the InfiniBand transport, because NCCL does not support iWARP. */
		if (!context || all[i]->transport_type != IBV_TRANSPORT_IB || device(context, &attributes) ||
		    port(context, 1, (struct _compat_ibv_port_attr *)&state))
			continue;
		if (state.state != IBV_PORT_ACTIVE ||
		    (state.link_layer != IBV_LINK_LAYER_INFINIBAND && state.link_layer != IBV_LINK_LAYER_ETHERNET))
			continue;
		printf("device %s would be used\n", name(all[i]));
		used++;
	}
	return used ? 0 : 1;
}
