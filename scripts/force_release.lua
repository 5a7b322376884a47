--! script force_release
--! key 1 lock    hash    NAME
--! key 2 channel channel redisson_lock__channel:{NAME}
--! key 3 fair    list    redisson_lock_queue:{NAME}
--! arg 1 publish publish|spublish
--! arg 2 owner   string
--! reply int     1 released; 0 there was no lock, or not of this owner
--! bound 4000 calls 25 MB
--
-- Removes the lock, with all of its owners, and serves the queue, or tells all waiters and the first waiter for the
-- fair lock of the name. If the lock had several owners, waiters under each of them (see delegate_enter) are told
-- first, for 64 owners at most. With an owner, the lock is removed only if this owner holds it.
local several = redis.call('hlen', KEYS[1])
if several == 0 then
  return 0
end
--! include not_read_write
if ARGV[2] ~= '' and redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
  return 0
end
if ARGV[2] ~= '' and several > 1 then -- each owner has its own lease: see delegate_enter
  --! include server_time
  --! include nest_of lock=KEYS[1]
  local entries
  local size = redis.call('hlen', nest)
  --! include fields_of key=nest size=size most=owners_read fields=entries
  for i = 1, entries and #entries or 0, 2 do
    local ends = tonumber(string.match(entries[i + 1], '^%d+:(%d+)$'))
    if entries[i] == ARGV[2] and ends and ends <= now then
      return 0
    end
  end
end
local owners, served = {}, false
if several > 1 then
  --! include fields_of key=KEYS[1] size=several most=owners_read fields=owners
end
redis.call('unlink', KEYS[1])
for i = 1, owners and math.min(#owners, 2 * owners_told) or 0, 2 do
  if #owners[i] <= owner_longest then -- a longer one is damage: see longest_reader
    redis.call(ARGV[1], KEYS[2] .. ':under:' .. owners[i], '0')
  end
end
--! include tell_waiters lock=KEYS[1] to=KEYS[2] publish=ARGV[1] served=served
if not served then
  --! include tell_queue_head queue=KEYS[3] publish=ARGV[1] channel=KEYS[2]
end
return 1
