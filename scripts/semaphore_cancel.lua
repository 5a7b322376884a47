--! script semaphore_cancel
--! key 1 semaphore string
--! key 2 once      string
--! key 3 channel   channel
--! arg 1 permits   int
--! arg 2 keep      ms
--! arg 3 publish   string
--! reply int       1 given back; 0 nothing was taken
--
-- Undoes a semaphore_take. If the take was executed, its permits are released. If it has not arrived yet, it will be
-- refused.
--! include permits_value
local done = redis.call('get', KEYS[2])
redis.call('set', KEYS[2], '0', 'px', ARGV[2])
if done ~= '1' or not value then
  return 0
end
local there = redis.call('incrby', KEYS[1], ARGV[1])
if there > 0 then
  --! include announce_permits publish=ARGV[3]
end
return 1
