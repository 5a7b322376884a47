--! fragment queue_key channel lock
--
-- The queue of clients that wait for a lock. Its key ends as the lock's channel does, with a colon behind a
-- name that has braces of its own.
local queue = 'mortise:1:next:' .. string.sub(channel, 24)
if string.sub(channel, 24) == lock then
  queue = queue .. ':'
end
