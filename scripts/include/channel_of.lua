--! fragment channel_of lock
--
-- The channel of a lock. A name that has braces of its own gets no others.
local channel = 'redisson_lock__channel:{' .. lock .. '}'
if string.find(lock, '{', 1, true) then
  channel = 'redisson_lock__channel:' .. lock
end
