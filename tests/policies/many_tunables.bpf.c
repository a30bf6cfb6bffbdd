/* SPDX-License-Identifier: MIT */
#include <belfry/policy.h>

BELFRY_POLICY("many_tunables", "has more tunables than can be shown");

#define TUNABLES(name) \
	const volatile __u32 name##0, name##1, name##2, name##3, name##4, name##5, name##6, name##7
#define SUM(name) (name##0 + name##1 + name##2 + name##3 + name##4 + name##5 + name##6 + name##7)

TUNABLES(a);
TUNABLES(b);
TUNABLES(c);
TUNABLES(d);
TUNABLES(e);
TUNABLES(f);
TUNABLES(g);
TUNABLES(h);
const volatile __u32 one_more;

BELFRY_HOOK(pick)
int pick(struct belfry_pick *ctx)
{
	(void)ctx;
	return !(SUM(a) + SUM(b) + SUM(c) + SUM(d) + SUM(e) + SUM(f) + SUM(g) + SUM(h) + one_more);
}
