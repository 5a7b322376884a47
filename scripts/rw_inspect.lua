--! script rw_inspect
--! key 1 lock    hash   NAME
--! key 2 prefix  string {NAME}
--! reply strings pttl, mode, then field and hold count in turn; nothing where the key is absent
--! bound 10500 calls 3 MB
--
-- Reads a read-write lock, without expired readers. The limit holds_read: see read_release; a reader beyond it
-- counts as live. Of more fields than that none is told.
--! include read_write_mode
if not mode then
  return {}
end
local out = {string.format('%.0f', redis.call('pttl', KEYS[1])), mode}
local fields
local size = redis.call('hlen', KEYS[1])
--! include fields_of key=KEYS[1] size=size most=holds_read+1 fields=fields
fields = fields or {}
local prefix = KEYS[2]
--! include live_sides fields=fields owners=out
return out
