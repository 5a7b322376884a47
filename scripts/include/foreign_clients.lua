--! fragment foreign_clients mark channel quiet foreign fair also count
--
-- Sets foreign to the number of foreign clients of a plain lock: those of foreign_subscribers, and the clients of the
-- first eight places in the fair lock's queue, whose key is in places. fair becomes the number of the latter, if there
-- are any. quiet: there is no such queue. also and count: as in foreign_subscribers.
--! include foreign_subscribers mark=mark channel=channel foreign=foreign also=also count=count
local places, clients = 'redisson_lock_queue:' .. string.sub(channel, #'redisson_lock__channel:' + 1), {}
for _, place in ipairs(quiet and {} or redis.pcall('lrange', places, 0, turn_most - 1)) do -- an error has no places
  local client = string.match(place, '^.*:') or place
  if not clients[client] then
    clients[client], foreign, fair = true, foreign + 1, (fair or 0) + 1
  end
end
