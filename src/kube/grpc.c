#include "kube/grpc.h"

#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/own.h"

enum { PREFIX = 5, OUTBOUND_ACK_MAX = 256, GRPC_MESSAGES_MAX = 4 * GRPC_MESSAGE_MAX };

struct grpc_call {
	struct grpc *grpc;
	int32_t id;
	char path[GRPC_PATH_MAX + 1];
	bool has_long_path, is_called, is_answering, is_finished;
	struct proto_writer in; /* received, with its prefix */
	uint8_t *out;		/* being sent, with its prefix */
	size_t out_count, out_at;
	uint8_t *next; /* sent after it */
	size_t next_count;
	enum grpc_status status;
	char text[GRPC_TEXT_MAX + 1];
	LIST_ENTRY(grpc_call) entry; /* grpc::calls */
};

struct grpc {
	nghttp2_session *session;
	struct grpc_events events;
	bool is_client, is_answered;
	LIST_HEAD(, grpc_call) calls;
	size_t in_all; /* bytes of all messages that are being received */
};

static nghttp2_nv header(const char *name, const char *value)
{
	return (nghttp2_nv){ .name = (uint8_t *)(uintptr_t)name,
			     .value = (uint8_t *)(uintptr_t)value,
			     .namelen = strlen(name),
			     .valuelen = strlen(value) };
}

static void free_call(struct grpc_call *call)
{
	call->grpc->in_all -= call->in.count;
	LIST_REMOVE(call, entry);
	free(call->in.at);
	free(call->out);
	free(call->next);
	free(call);
}

static struct grpc_call *new_call(struct grpc *grpc, int32_t id)
{
	struct grpc_call *call = calloc(1, sizeof(*call));

	if (!call)
		return NULL;
	call->grpc = grpc;
	call->id = id;
	LIST_INSERT_HEAD(&grpc->calls, call, entry);
	return call;
}

static struct grpc_call *call_of(struct grpc *grpc, int32_t id)
{
	return nghttp2_session_get_stream_user_data(grpc->session, id);
}

/* Callbacks of nghttp2. */
static int on_begin(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	struct grpc *grpc = user;
	struct grpc_call *call;

	if (grpc->is_client || frame->hd.type != NGHTTP2_HEADERS ||
	    frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	call = new_call(grpc, frame->hd.stream_id);
	if (!call)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call);
	return 0;
}

/* The message of an error is percent-encoded. It is for display. */
static void take_text(struct grpc_call *call, const uint8_t *value, size_t length)
{
	if (length > GRPC_TEXT_MAX)
		length = GRPC_TEXT_MAX;
	memcpy(call->text, value, length);
	call->text[length] = 0;
}

static void take_status(struct grpc_call *call, const uint8_t *value, size_t length)
{
	unsigned status = 0;

	for (size_t i = 0; i < length && status < 100; i++)
		status = value[i] >= '0' && value[i] <= '9' ? status * 10 + (value[i] - '0') : 100;
	call->status = length && status < 100 ? status : GRPC_UNKNOWN;
	call->is_called = true; /* it has a status */
}

static bool is_name(const uint8_t *name, size_t length, const char *wanted)
{
	return length == strlen(wanted) && !memcmp(name, wanted, length);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_length, const uint8_t *value, size_t length, uint8_t flags, void *user)
{
	struct grpc *grpc = user;
	struct grpc_call *call = call_of(grpc, frame->hd.stream_id);

	(void)session;
	(void)flags;
	if (!call)
		return 0;
	if (grpc->is_client && is_name(name, name_length, "grpc-status")) {
		take_status(call, value, length);
	} else if (grpc->is_client && is_name(name, name_length, "grpc-message")) {
		take_text(call, value, length);
	} else if (!grpc->is_client && is_name(name, name_length, ":path")) {
		call->has_long_path = length > GRPC_PATH_MAX || memchr(value, 0, length);
		if (!call->has_long_path) {
			memcpy(call->path, value, length);
			call->path[length] = 0;
		}
	}
	return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t length,
		   void *user)
{
	struct grpc *grpc = user;
	struct grpc_call *call = call_of(grpc, id);
	uint8_t *at;

	(void)flags;
	if (!call || grpc->is_client || call->is_called)
		return 0;
	if (call->in.count + length > GRPC_MESSAGE_MAX + PREFIX ||
	    grpc->in_all + length > GRPC_MESSAGES_MAX) {
		nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_ENHANCE_YOUR_CALM);
		return 0;
	}
	at = realloc(call->in.at, call->in.count + length + 1);
	if (!at)
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	memcpy(at + call->in.count, data, length);
	call->in.at = at;
	call->in.count += length;
	grpc->in_all += length;
	return 0;
}

/* The whole message, without its prefix. */
static bool message_of(const struct grpc_call *call, struct proto_bytes *message)
{
	const uint8_t *at = call->in.at;
	size_t count;

	if (call->in.count < PREFIX || at[0])
		return false;
	count = (size_t)at[1] << 24 | (size_t)at[2] << 16 | (size_t)at[3] << 8 | at[4];
	*message = (struct proto_bytes){ at + PREFIX, count };
	return count == call->in.count - PREFIX;
}

static void end_of_request(struct grpc_call *call)
{
	struct proto_bytes message;
	struct grpc *grpc = call->grpc;

	if (call->is_called)
		return;
	call->is_called = true;
	if (call->has_long_path)
		grpc_finish(call, GRPC_UNIMPLEMENTED, "the path is too long");
	else if (!message_of(call, &message))
		grpc_finish(call, GRPC_INVALID, "one message without compression is expected");
	else
		grpc->events.called(grpc->events.context, call, call->path, message);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
	struct grpc *grpc = user;
	struct grpc_call *call = frame->hd.stream_id ? call_of(grpc, frame->hd.stream_id) : NULL;

	(void)session;
	if (call && !grpc->is_client && frame->hd.flags & NGHTTP2_FLAG_END_STREAM &&
	    (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA))
		end_of_request(call);
	return 0;
}

static void answered(struct grpc *grpc, enum grpc_status status, const char *text)
{
	if (grpc->is_answered)
		return;
	grpc->is_answered = true;
	nghttp2_session_terminate_session(grpc->session, NGHTTP2_NO_ERROR);
	grpc->events.answered(grpc->events.context, status, text);
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *user)
{
	struct grpc *grpc = user;
	struct grpc_call *call = call_of(grpc, id);

	(void)session;
	if (!call)
		return 0;
	if (!grpc->is_client)
		grpc->events.gone(grpc->events.context, call);
	else if (call->is_called)
		answered(grpc, call->status, call->text);
	else
		answered(grpc, GRPC_UNAVAILABLE, code ? "the stream was reset" : "no status was sent");
	nghttp2_session_set_stream_user_data(grpc->session, id, NULL);
	free_call(call);
	return 0;
}

static nghttp2_session *new_session(struct grpc *grpc)
{
	nghttp2_session_callbacks *callbacks = NULL;
	nghttp2_session *session = NULL;
	nghttp2_option *option = NULL;

	if (nghttp2_session_callbacks_new(&callbacks) || nghttp2_option_new(&option))
		goto out;
	/* grpc-go up to 1.27 sends the path of the socket as :authority, which nghttp2 would refuse. */
	nghttp2_option_set_no_http_messaging(option, 1);
	nghttp2_option_set_max_outbound_ack(option, OUTBOUND_ACK_MAX);
	nghttp2_option_set_no_closed_streams(option, 1);
	nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
	if (grpc->is_client ? nghttp2_session_client_new2(&session, callbacks, grpc, option)
			    : nghttp2_session_server_new2(&session, callbacks, grpc, option))
		session = NULL;
out:
	nghttp2_session_callbacks_del(callbacks);
	nghttp2_option_del(option);
	return session;
}

static struct grpc *new_grpc(const struct grpc_events *events, bool is_client)
{
	const nghttp2_settings_entry settings[] = {
		{ NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, GRPC_STREAMS_MAX },
		{ NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, 16 << 10 },
		{ NGHTTP2_SETTINGS_ENABLE_PUSH, 0 },
	};
	struct grpc *grpc = calloc(1, sizeof(*grpc));

	if (!grpc)
		return NULL;
	grpc->events = *events;
	grpc->is_client = is_client;
	LIST_INIT(&grpc->calls);
	grpc->session = new_session(grpc);
	/* Only a client may say that it accepts no pushed streams. */
	if (!grpc->session ||
	    nghttp2_submit_settings(grpc->session, NGHTTP2_FLAG_NONE, settings, is_client ? 3 : 2)) {
		grpc_free(grpc);
		return NULL;
	}
	return grpc;
}

struct grpc *grpc_new_server(const struct grpc_events *events)
{
	return new_grpc(events, false);
}

/* A message and its prefix. */
static uint8_t *framed(const uint8_t *at, size_t count)
{
	uint8_t *bytes = malloc(count + PREFIX);

	if (!bytes)
		return NULL;
	bytes[0] = 0;
	for (unsigned i = 0; i < 4; i++)
		bytes[1 + i] = (uint8_t)(count >> (24 - 8 * i));
	if (count)
		memcpy(bytes + PREFIX, at, count);
	return bytes;
}

/* The trailers of an answer. */
static void submit_end(struct grpc_call *call)
{
	char status[16];
	nghttp2_nv fields[] = { header("grpc-status", status), header("grpc-message", call->text) };

	snprintf(status, sizeof(status), "%d", call->status);
	fields[0] = header("grpc-status", status);
	nghttp2_submit_trailer(call->grpc->session, call->id, fields, call->text[0] ? 2 : 1);
}

static void take_next(struct grpc_call *call)
{
	free(call->out);
	call->out = call->next;
	call->out_count = call->next_count;
	call->out_at = 0;
	call->next = NULL;
	call->next_count = 0;
}

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *to, size_t room, uint32_t *flags,
		       nghttp2_data_source *source, void *user)
{
	struct grpc_call *call = source->ptr;
	size_t count;

	(void)session;
	(void)id;
	(void)user;
	if (!call->out || call->out_at == call->out_count)
		take_next(call);
	count = call->out ? call->out_count - call->out_at : 0;
	if (!count && !call->is_finished)
		return NGHTTP2_ERR_DEFERRED;
	if (count > room)
		count = room;
	if (count)
		memcpy(to, call->out + call->out_at, count);
	call->out_at += count;
	if (call->is_finished && call->out_at == call->out_count && !call->next) {
		*flags |= NGHTTP2_DATA_FLAG_EOF;
		if (!call->grpc->is_client) {
			*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
			submit_end(call);
		}
	}
	return (ssize_t)count;
}

/* The headers of the answer, once; then the data. */
static void wake(struct grpc_call *call)
{
	const nghttp2_nv fields[] = { header(":status", "200"), header("content-type", "application/grpc") };
	nghttp2_data_provider provider = { .source.ptr = call, .read_callback = on_read };

	if (call->is_answering)
		nghttp2_session_resume_data(call->grpc->session,
					    call->id); /* fails if the data did not wait */
	else
		nghttp2_submit_response(call->grpc->session, call->id, fields, 2, &provider);
	call->is_answering = true;
}

void grpc_send(struct grpc_call *call, const struct proto_writer *message)
{
	uint8_t *bytes = message->is_bad ? NULL : framed(message->at, message->count);

	if (!bytes) {
		grpc_finish(call, GRPC_INTERNAL, "out of memory");
		return;
	}
	free(call->next);
	call->next = bytes;
	call->next_count = message->count + PREFIX;
	wake(call);
}

void grpc_finish(struct grpc_call *call, enum grpc_status status, const char *text)
{
	static const char hex[] = "0123456789ABCDEF";
	size_t at = 0;

	if (call->is_finished)
		return;
	for (; text && *text && at + 4 < sizeof(call->text); text++) {
		if (*text >= 0x20 && *text < 0x7f && *text != '%') {
			call->text[at++] = *text;
			continue;
		}
		call->text[at++] = '%';
		call->text[at++] = hex[(uint8_t)*text >> 4];
		call->text[at++] = hex[*text & 15];
	}
	call->text[at] = 0;
	call->status = status;
	call->is_finished = true;
	wake(call);
}

struct grpc *grpc_new_client(const struct grpc_events *events, const char *path, struct proto_bytes message)
{
	struct grpc *grpc = new_grpc(events, true);
	struct grpc_call *call = grpc ? new_call(grpc, 0) : NULL;
	const nghttp2_nv fields[] = {
		header(":method", "POST"),
		header(":scheme", "http"),
		header(":path", path),
		header(":authority", "localhost"),
		header("content-type", "application/grpc"),
		header("te", "trailers"),
	};
	nghttp2_data_provider provider = { .source.ptr = call, .read_callback = on_read };

	if (call) {
		call->out = framed(message.at, message.count);
		call->out_count = message.count + PREFIX;
		call->is_finished = true;
	}
	if (call && call->out)
		call->id = nghttp2_submit_request(grpc->session, NULL, fields, 6, &provider, call);
	if (call && call->id > 0)
		return grpc;
	if (grpc)
		grpc_free(grpc);
	return NULL;
}

void grpc_free(struct grpc *grpc)
{
	struct grpc_call *call, *after;

	LIST_FOREACH_SAFE(call, &grpc->calls, entry, after) {
		if (!grpc->is_client)
			grpc->events.gone(grpc->events.context, call);
		free_call(call);
	}
	nghttp2_session_del(grpc->session);
	free(grpc);
}

int grpc_feed(struct grpc *grpc, const uint8_t *bytes, size_t count)
{
	ssize_t taken = nghttp2_session_mem_recv(grpc->session, bytes, count);

	return taken == (ssize_t)count ? 0 : -1;
}

ssize_t grpc_pull(struct grpc *grpc, const uint8_t **bytes)
{
	return nghttp2_session_mem_send(grpc->session, bytes);
}

bool grpc_is_over(const struct grpc *grpc)
{
	return !nghttp2_session_want_read(grpc->session) && !nghttp2_session_want_write(grpc->session);
}
