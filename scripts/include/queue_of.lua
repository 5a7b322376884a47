--! fragment queue_of lock
--
-- The queue of a lock. Its key ends as the lock's channel does, with a colon behind a name that has braces of its own.
local queue = 'mortise:1:queue:{' .. lock .. '}'
if string.find(lock, '{', 1, true) then
  queue = 'mortise:1:queue:' .. lock .. ':'
end
