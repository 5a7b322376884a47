--! script semaphore_cancel
--! key 1 semaphore string  NAME
--! key 2 once      string  mortise:1:once:{NAME}:ID
--! key 3 channel   channel redisson_sc:{NAME}
--! arg 1 permits   int
--! arg 2 keep      ms
--! arg 3 publish   publish|spublish
--! reply int       1 given back; 0 nothing was taken
--! bound 1000 calls 10 MB
--
-- Undoes a semaphore_take. If the take was executed, its permits are released. If it has not arrived yet, it will be
-- refused.
--! include permits_value
local done = redis.call('get', KEYS[2])
redis.call('unlink', KEYS[2]) -- a write that needs no memory goes first: see release
redis.call('set', KEYS[2], '0', 'px', ARGV[2])
if done ~= '1' or not value then
  return 0
end
local there = redis.call('incrby', KEYS[1], ARGV[1])
if there > 0 then
  --! include announce_permits publish=ARGV[3]
end
return 1
