--! fragment wake_queue name prefix
--
-- The queue of a semaphore or a read-write lock, and the channel of its releases. A name that has braces of its own gets
-- no others, but a colon. The queue is none of KEYS: see queue_of.
--
-- A member is an entry, as in the queue of a plain lock. A score of zero or more is when it came: the entry waits. Below
-- zero it is the time, negative, until which the entry's client is to ask, because it was told to: until then what it
-- was told of is granted to no other client of mortise. Redisson's clients heed no queue. What an entry asks for is in
-- a hash beside the queue, if it is more than one permit, or the writing side.
local queue = 'mortise:1:wake:{' .. name .. '}'
local channel = prefix .. '{' .. name .. '}'
if string.find(name, '{', 1, true) then
  queue, channel = 'mortise:1:wake:' .. name .. ':', prefix .. name
end
local at, came -- see wake_time
--! include teller channel=channel
