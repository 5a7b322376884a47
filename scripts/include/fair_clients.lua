--! fragment fair_clients places fair
--
-- Adds to fair the number of clients of the first eight places in the queue of the fair lock of the same name.
local clients = {}
for _, place in ipairs(redis.pcall('lrange', places, 0, turn_most - 1)) do -- an error has no places
  local client = string.match(place, '^.*:') or place
  fair = fair + (clients[client] and 0 or 1)
  clients[client] = true
end
