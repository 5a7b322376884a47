--! fragment queue_of lock
--
-- The queue of a lock. A name that has braces of its own gets no others, but a colon: no two names share a queue. It is
-- none of KEYS, so a node of a cluster to which its slot is being moved refuses it: then it is taken for empty.
local queue = 'mortise:1:next:{' .. lock .. '}2'
if string.find(lock, '{', 1, true) then
  queue = 'mortise:1:next:' .. lock .. ':2'
end
