--! fragment wake_queue name prefix
--
-- The queue of a semaphore or a read-write lock, and the channel of its releases. A name with braces of its own gets
-- a colon instead of more braces. The queue is not among KEYS: see queue_of.
--
-- A member is an entry, as in the queue of a plain lock; see also owner_entry. A score of zero or more is the time of arrival: the entry
-- waits. A negative score means that the entry's client was told to ask. Without its sign it is a time in ms: until
-- then the permits, or the side, are granted to no other client of mortise. Redisson's clients do not heed the
-- queue. A hash beside the queue has what an entry asks for, if that is more than one permit, or the write side.
local queue = 'mortise:1:wake:{' .. name .. '}'
local channel = prefix .. '{' .. name .. '}'
if string.find(name, '{', 1, true) then
  queue, channel = 'mortise:1:wake:' .. name .. ':', prefix .. name
end
local asks = queue .. ':wants'
--! include teller
