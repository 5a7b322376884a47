--! fragment channel_of lock queue
--
-- The channel of a lock, which ends as the key of its queue does: a name that has braces of its own gets no others.
local channel = 'redisson_lock__channel:' .. string.sub(queue, 17)
if string.find(lock, '{', 1, true) then
  channel = 'redisson_lock__channel:' .. lock
end
