--! fragment foreign_clients mark channel foreign fair
--
-- foreign_subscribers, for a plain lock. Clients that wait for a fair lock of that name, whose queue is in places, count,
-- too: those of the first eight places. fair tells that there are some.
--! include foreign_subscribers mark=mark channel=channel foreign=foreign
local places, clients = 'redisson_lock_queue:' .. string.sub(channel, 24), {}
for i = 0, 7 do
  local place = redis.pcall('lindex', places, i)
  if type(place) ~= 'string' then
    break
  end
  local client = string.match(place, '^.*:') or place
  foreign, fair = foreign + (clients[client] and 0 or 1), true
  clients[client] = true
end
