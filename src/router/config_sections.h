/* Between the reader of the configuration (config.c), the meaning of its sections (config_sections.c) and its values
 * (config_values.c). Private to the module. */
#ifndef BELFRY_ROUTER_CONFIG_SECTIONS_H
#define BELFRY_ROUTER_CONFIG_SECTIONS_H

#include "router/config.h"

enum { CONFIG_SECTIONS = 5 };

/* The state of the parser. */
struct config_reader {
	struct config *config;
	const struct config_section *section; /* NULL: before the first one */
	struct config_vgpu *vgpu;	      /* in [vgpu NAME] */
	size_t quota;			      /* in [user NAME]: index in config::quotas */
	bool is_state;
	unsigned line;
	unsigned lines[CONFIG_SECTIONS]; /* where the sections without a name are in this file; 0: nowhere */
};

/* `line` begins with "[". It is changed. */
int config_open_section(struct config_reader *reader, char *line, struct bf_error *err);
/* `key = value` of the section. */
int config_take(struct config_reader *reader, const char *key, const char *value, struct bf_error *err);

/* config_values.c */
/* Like bf_parse_time(), but accepts "0" with or without a unit. */
int config_parse_time(const char *text, uint64_t *us, struct bf_error *err);
/* The index of `text` among `words`, which end with NULL. */
int config_parse_word(const char *key, const char *text, const char *const *words, uint32_t *value,
		      struct bf_error *err);
/* A number, or the name of a user or group. */
int config_parse_id(const struct config *config, const char *key, const char *text, bool is_group,
		    uint32_t *id, struct bf_error *err);

#endif
