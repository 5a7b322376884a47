--! script latch_delete
--! key 1 latch   string NAME
--! key 2 once    string mortise:1:once:{NAME}:ID
--! arg 1 keep    ms
--! arg 2 publish publish|spublish
--! reply int     1 deleted; 0 there was no count
--! bound 12 calls 3 MB
--
-- Removes a latch and tells its waiters. once remembers, for keep, the outcome of this request.
--! include count_value
local set = redis.pcall('set', KEYS[2], value and '1' or '0', 'px', ARGV[1], 'nx')
if type(set) == 'table' and set.err then -- a full server
  set = false -- executed before
  if not redis.call('get', KEYS[2]) then
    redis.call('del', KEYS[2]) -- see release: the key is absent
    set = redis.call('set', KEYS[2], value and '1' or '0', 'px', ARGV[1], 'nx')
  end
end
if not set then
  return tonumber(redis.call('get', KEYS[2]))
end
if not value then
  return 0
end
redis.call('del', KEYS[1])
--! include tell_latch publish=ARGV[2] message='1'
return 1
