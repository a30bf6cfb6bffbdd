#include <errno.h>
#include <string.h>

#include "base/units.h"
#include "slurm/plugin.h"

enum { PER_GPU_MAX = 100000 };

static int read_shards(struct config *config, const char *value, struct bf_error *err)
{
	long number;
	int rc = bf_parse_number("shards", value, 1, PER_GPU_MAX, &number, err);

	config->rule.per_gpu = rc ? 0 : (uint32_t)number;
	return rc;
}

static int read_shard_mem(struct config *config, const char *value, struct bf_error *err)
{
	return bf_parse_size(value, &config->rule.mem_bytes, err);
}

static int read_path(const char **to, const char *value, struct bf_error *err)
{
	if (*value != '/')
		return bf_fail(err, EINVAL, "'%.100s': not a path from / on", value);
	*to = value;
	return 0;
}

static int read_socket(struct config *config, const char *value, struct bf_error *err)
{
	return read_path(&config->socket, value, err);
}

static int read_library(struct config *config, const char *value, struct bf_error *err)
{
	return read_path(&config->library, value, err);
}

static int read_comment(struct config *config, const char *value, struct bf_error *err)
{
	config->writes_comment = !strcmp(value, "yes");
	return config->writes_comment || !strcmp(value, "no")
		       ? 0
		       : bf_fail(err, EINVAL, "'%.100s': not yes or no", value);
}

static const struct {
	const char *key;
	int (*read)(struct config *config, const char *value, struct bf_error *err);
} keys[] = {
	{ "shards=", read_shards },   { "shard_mem=", read_shard_mem }, { "socket=", read_socket },
	{ "library=", read_library }, { "comment=", read_comment },
};

static int read_word(struct config *config, const char *word, struct bf_error *err)
{
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		size_t length = strlen(keys[i].key);
		struct bf_error why;
		int rc;

		if (strncmp(word, keys[i].key, length) != 0)
			continue;
		rc = keys[i].read(config, word + length, &why);
		return rc ? bf_fail(err, -rc, "plugstack.conf: %s %s", keys[i].key, why.text) : 0;
	}
	return bf_fail(err, EINVAL,
		       "plugstack.conf: '%.100s': not known; write shards=, shard_mem=, socket=, library= or "
		       "comment=",
		       word);
}

int config_read(struct config *config, int count, char *const words[], struct bf_error *err)
{
	int rc = 0;

	*config = (struct config){ .socket = "/run/belfry/belfryd.sock",
				   .library = BELFRY_SOFT_LIBRARY,
				   .writes_comment = true };
	for (int i = 0; i < count && !rc; i++)
		rc = read_word(config, words[i], err);
	return rc;
}
