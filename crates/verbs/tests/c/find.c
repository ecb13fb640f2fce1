/* Loads both libraries from a folder, looks up each "library symbol version" line of its input, and reports those that
 * are missing. Then calls one function that has several versions, and one that is implemented as a jump. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static void *load(const char *folder, const char *name)
{
	char path[4096];
	void *library;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		printf("not loaded: %s\n", dlerror());
	return library;
}

int main(int argc, char **argv)
{
	static const char *const nodes[] = { "IBVERBS_PRIVATE_22", "IBVERBS_PRIVATE_25", "IBVERBS_PRIVATE_33",
					     "IBVERBS_PRIVATE_34", "IBVERBS_PRIVATE_57", "IBVERBS_PRIVATE_59",
					     "IBVERBS_PRIVATE_64", "IBVERBS_PRIVATE_65" };
	char library[100], symbol[100], version[100];
	void *verbs, *cm;
	bool *flag = NULL;
	int found = 0;
	const char *(*name)(int);
	size_t i;

	if (argc != 2)
		return 2;
	verbs = load(argv[1], "libibverbs.so.1");
	cm = load(argv[1], "librdmacm.so.1");
	if (!verbs || !cm)
		return 1;
	while (scanf("%99s %99s %99s", library, symbol, version) == 3) {
		if (dlvsym(strcmp(library, "verbs") ? cm : verbs, symbol, version))
			found++;
		else
			printf("not found: %s@%s\n", symbol, version);
	}
	printf("found %d\n", found);

	for (i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
		int (*refused)(void *, int);
		bool *its_flag = dlvsym(verbs, "verbs_allow_disassociate_destroy", nodes[i]);

		*(void **)&refused = dlvsym(verbs, "ibv_cmd_alloc_mw", nodes[i]);
		if (!refused || refused(NULL, 1) != EOPNOTSUPP)
			printf("not refused: %s\n", nodes[i]);
		if (!its_flag || (flag && flag != its_flag) || *its_flag)
			printf("not the flag: %s\n", nodes[i]);
		flag = its_flag;
	}
	*(void **)&name = dlvsym(cm, "rdma_event_str", "RDMACM_1.0");
	if (!name || strcmp(name(9), "RDMA_CM_EVENT_ESTABLISHED"))
		printf("not reached: rdma_event_str\n");
	return 0;
}
