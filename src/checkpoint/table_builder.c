#include "base/mem.h"
#include "checkpoint/crc32c.h"
#include "checkpoint/table.h"
#include "checkpoint/table_format.h"
#include "proto/wire.h"

static void put_u32(td_strbuf *b, uint32_t v) { td_strbuf_append(b, td_str_n(&v, 4)); }

void td_table_builder_init(td_table_builder *b, td_new_file *file) { *b = (td_table_builder){.file = file}; }

void td_table_builder_deinit(td_table_builder *b) {
  td_strbuf_deinit(&b->block);
  td_strbuf_deinit(&b->index);
  td_strbuf_deinit(&b->key);
  td_strbuf_deinit(&b->restarts);
}

/* Ends `block` (its entries) by the restart array, and writes it with its trailer. */
static td_status write_block(td_table_builder *b, td_strbuf *block, td_str restarts, uint64_t *offset, uint64_t *size) {
  uint32_t none = 0;
  if (!restarts.size) restarts = td_str_n(&none, 4);
  td_strbuf_append(block, restarts);
  put_u32(block, (uint32_t)(restarts.size / 4));
  *offset = b->file->size;
  *size = block->size;
  td_strbuf_putc(block, TABLE_PLAIN);
  put_u32(block, td_crc32c_mask(td_crc32c(block->data, block->size)));
  td_status status = td_new_file_write(b->file, block->data, block->size);
  block->size = 0;
  return status;
}

static td_status end_block(td_table_builder *b) {
  uint64_t offset, size;
  if (!b->in_block) return TD_STATUS_OK;
  TD_TRY(write_block(b, &b->block, td_strbuf_view(&b->restarts), &offset, &size));
  b->restarts.size = b->in_block = b->since_restart = 0;
  td_strbuf handle = {0};
  td_wire_put_varint(&handle, offset);
  td_wire_put_varint(&handle, size);
  td_wire_put_varint(&b->index, 0); /* each index entry is a restart; its key is the block's last */
  td_wire_put_varint(&b->index, b->key.size);
  td_wire_put_varint(&b->index, handle.size);
  td_strbuf_append(&b->index, td_strbuf_view(&b->key));
  td_strbuf_append(&b->index, td_strbuf_view(&handle));
  td_strbuf_deinit(&handle);
  b->index_count++;
  return TD_STATUS_OK;
}

td_status td_table_builder_add(td_table_builder *b, td_str key, td_str value) {
  td_str last = td_strbuf_view(&b->key);
  if ((b->in_block || b->index_count) && td_str_cmp(last, key) >= 0) {
    return td_internal("Key %.*s does not come after %.*s", (int)TD_MIN(key.size, 256), key.data,
                       (int)TD_MIN(last.size, 256), last.data);
  }
  if (b->block.size && (b->block.size >= TABLE_BLOCK_SIZE || value.size > TABLE_BLOCK_SIZE)) TD_TRY(end_block(b));
  size_t shared = 0;
  if (b->in_block && b->since_restart < TABLE_RESTART_INTERVAL) {
    while (shared < key.size && shared < last.size && key.data[shared] == last.data[shared]) shared++;
  } else {
    put_u32(&b->restarts, (uint32_t)b->block.size);
    b->since_restart = 0;
  }
  td_wire_put_varint(&b->block, shared);
  td_wire_put_varint(&b->block, key.size - shared);
  td_wire_put_varint(&b->block, value.size);
  td_strbuf_append(&b->block, td_str_n(key.data + shared, key.size - shared));
  td_strbuf_append(&b->block, value);
  b->key.size = shared;
  td_strbuf_append(&b->key, td_str_n(key.data + shared, key.size - shared));
  b->in_block++;
  b->since_restart++;
  return TD_STATUS_OK;
}

/* Where the entries of the index begin: each is a restart. */
static void index_restarts(const td_table_builder *b, td_strbuf *out) {
  td_wire w = td_wire_of(td_strbuf_view(&b->index));
  const uint8_t *begin = w.next;
  uint64_t shared = 0, rest = 0, value = 0;
  while (td_wire_left(&w)) {
    put_u32(out, (uint32_t)(w.next - begin));
    if (!td_wire_read_varint(&w, &shared) || !td_wire_read_varint(&w, &rest) || !td_wire_read_varint(&w, &value))
      return;
    w.next += rest + value;
  }
}

td_status td_table_builder_finish(td_table_builder *b) {
  uint64_t offset, size;
  td_strbuf meta = {0}, footer = {0}, restarts = {0};
  td_status status;
  TD_TRY_GOTO(end_block(b));
  TD_TRY_GOTO(write_block(b, &meta, TD_STR(""), &offset, &size));
  td_wire_put_varint(&footer, offset);
  td_wire_put_varint(&footer, size);
  index_restarts(b, &restarts);
  TD_TRY_GOTO(write_block(b, &b->index, td_strbuf_view(&restarts), &offset, &size));
  td_wire_put_varint(&footer, offset);
  td_wire_put_varint(&footer, size);
  while (footer.size < TABLE_FOOTER_SIZE - 8) td_strbuf_putc(&footer, 0);
  td_strbuf_append(&footer, td_str_n(&(uint64_t){TABLE_MAGIC}, 8));
  status = td_new_file_write(b->file, footer.data, footer.size);
cleanup:
  td_strbuf_deinit(&meta);
  td_strbuf_deinit(&footer);
  td_strbuf_deinit(&restarts);
  return status;
}
