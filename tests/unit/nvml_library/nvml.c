/* What tests/unit/nvml.c finds in place of NVIDIA's library: two GPUs whose minors are not their numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What the test says and asks. */
extern char fake_fails[64]; /* the function that does */
extern int fake_samples, fake_sessions, fake_is_supported;
extern double fake_percents[2];
char fake_fails[64];
int fake_samples, fake_sessions, fake_is_supported = 1;
double fake_percents[2] = { 96.5, 17.5 };

struct metric {
	unsigned id;
	int status;
	double percent;
	const char *names[3];
};
struct question {
	unsigned version, count;
	int **from, **to;
	struct metric metrics[];
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetMinorNumber(const unsigned *device, unsigned *minor);
int nvmlDeviceGetTemperature(const unsigned *device, int sensor, unsigned *celsius);
int nvmlDeviceGetPowerUsage(const unsigned *device, unsigned *milliwatts);
int nvmlGpmQueryDeviceSupport(void *device, unsigned *support);
int nvmlGpmSampleAlloc(int **sample);
int nvmlGpmSampleFree(int *sample);
int nvmlGpmSampleGet(const unsigned *device, int *sample);
int nvmlGpmMetricsGet(struct question *question);

static unsigned minors[] = { 1, 0 };
static int taken;

static int fails(const char *function)
{
	return strcmp(function, fake_fails) ? 0 : 3; /* NVML_ERROR_NOT_SUPPORTED */
}

int nvmlInit_v2(void)
{
	fake_sessions += !fails(__func__);
	return fails(__func__);
}

int nvmlShutdown(void)
{
	fake_sessions--;
	return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
	*count = 2;
	return fails(__func__);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
	*device = &minors[index];
	return fails(__func__);
}

int nvmlDeviceGetMinorNumber(const unsigned *device, unsigned *minor)
{
	*minor = *device;
	return fails(__func__);
}

/* Of the GPU with minor 0, and of the sensor that is the GPU's own. */
int nvmlDeviceGetTemperature(const unsigned *device, int sensor, unsigned *celsius)
{
	*celsius = 45;
	return fails(__func__) || sensor || *device != 0;
}

int nvmlDeviceGetPowerUsage(const unsigned *device, unsigned *milliwatts)
{
	*milliwatts = 120500;
	return fails(__func__) || *device != 0;
}

int nvmlGpmQueryDeviceSupport(void *device, unsigned *support)
{
	(void)device;
	support[1] = (unsigned)fake_is_supported;
	return fails(__func__) || support[0] != 1;
}

int nvmlGpmSampleAlloc(int **sample)
{
	*sample = fails(__func__) ? NULL : calloc(1, sizeof(**sample));
	fake_samples += *sample != NULL;
	return fails(__func__);
}

int nvmlGpmSampleFree(int *sample)
{
	free(sample);
	fake_samples--;
	return 0;
}

/* Of the GPU with minor 0, and each later than the one before. */
int nvmlGpmSampleGet(const unsigned *device, int *sample)
{
	*sample = ++taken;
	return fails(__func__) || *device != 0;
}

int nvmlGpmMetricsGet(struct question *question)
{
	const int *from = (const int *)question->from, *to = (const int *)question->to;

	if (question->version != 1 || question->count != 2 || *to != *from + 1)
		return 2; /* NVML_ERROR_INVALID_ARGUMENT */
	for (unsigned i = 0; i < 2; i++) {
		question->metrics[i].status = question->metrics[i].id == (i ? 10 : 2) ? 0 : 3;
		question->metrics[i].percent = fake_percents[i];
	}
	return fails(__func__);
}
