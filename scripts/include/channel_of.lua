--! fragment channel_of lock
--
-- The channel on which releases of a lock are announced. A name with braces of its own gets no more braces.
local channel = 'redisson_lock__channel:{' .. lock .. '}'
if string.find(lock, '{', 1, true) then
  channel = 'redisson_lock__channel:' .. lock
end
