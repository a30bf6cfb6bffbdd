#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dra/dra.h"

static const struct {
	const char *text;
	double factor;
} suffixes[] = {
	{ "", 1 },
	{ "n", 1e-9 },
	{ "u", 1e-6 },
	{ "m", 1e-3 },
	{ "k", 1e3 },
	{ "M", 1e6 },
	{ "G", 1e9 },
	{ "T", 1e12 },
	{ "P", 1e15 },
	{ "E", 1e18 },
	{ "Ki", 1024.0 },
	{ "Mi", 1048576.0 },
	{ "Gi", 1073741824.0 },
	{ "Ti", 1099511627776.0 },
	{ "Pi", 1125899906842624.0 },
	{ "Ei", 1152921504606846976.0 },
};

/* "e3", "E-2": an exponent. "E" alone is a suffix. */
static bool take_exponent(const char *text, double *factor)
{
	size_t sign = text[0] && (text[1] == '+' || text[1] == '-');

	if ((text[0] != 'e' && text[0] != 'E') || !isdigit((unsigned char)text[1 + sign]) ||
	    strspn(text + 1 + sign, "0123456789") != strlen(text + 1 + sign) || strlen(text) > 5)
		return false;
	*factor = pow(10, atoi(text + 1));
	return true;
}

static bool take_suffix(const char *text, double *factor)
{
	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (!strcmp(text, suffixes[i].text)) {
			*factor = suffixes[i].factor;
			return true;
		}
	return take_exponent(text, factor);
}

/* Without strtod(): it knows words and hexadecimal numbers, and depends on the locale. */
bool dra_quantity(const char *text, double *value)
{
	double number = 0, place = 1, factor;
	size_t digits = 0;

	for (text += *text == '+'; isdigit((unsigned char)*text); text++, digits++)
		number = number * 10 + (*text - '0');
	if (*text == '.')
		for (text++; isdigit((unsigned char)*text); text++, digits++)
			number += (*text - '0') * (place /= 10);
	if (!digits || digits > 30 || !take_suffix(text, &factor))
		return false;
	*value = number * factor;
	return *value <= 1e19;
}
