--! script semaphore_delete
--! key 1 semaphore string NAME
--! key 2 timeouts  zset   {NAME}:timeout
--! key 3 once      string mortise:1:once:{NAME}:ID
--! arg 1 keep      ms
--! reply int       1 deleted; 0 there was none
--! bound 12 calls 3 MB
--
-- Removes a semaphore, and its permits in use. once remembers, for keep, the outcome of this request.
--! include count_value
redis.call('zrange', KEYS[2], 0, 0) -- fails on a key of another type, before the first write
local set = redis.pcall('set', KEYS[3], value and '1' or '0', 'px', ARGV[1], 'nx')
if type(set) == 'table' and set.err then -- a full server
  set = false -- executed before
  if not redis.call('get', KEYS[3]) then
    redis.call('unlink', KEYS[3]) -- see release: the key is absent
    set = redis.call('set', KEYS[3], value and '1' or '0', 'px', ARGV[1], 'nx')
  end
end
if not set then
  return tonumber(redis.call('get', KEYS[3]))
end
redis.call('unlink', KEYS[1], KEYS[2])
return value and 1 or 0
