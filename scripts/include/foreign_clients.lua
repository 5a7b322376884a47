--! fragment foreign_clients mark foreign
--
-- Sets foreign to the number of foreign clients of a plain lock: those of foreign_subscribers, and those of fair_clients.
-- It is 0 in a pause of their turns (see redissons_turn): they listen, but do not take the lock.
local places, count = 'redisson_lock_queue:' .. string.sub(channel, #'redisson_lock__channel:' + 1), nil
--! include foreign_subscribers mark=mark foreign=foreign also={} count=count
--! include fair_clients places=places fair=foreign
if foreign > 0 then
  --! include server_time
  local pause = tonumber(redis.pcall('hget', round, 'pause') or 0) or 0
  foreign = pause > now and pause < now + pause_longest and 0 or foreign
end
