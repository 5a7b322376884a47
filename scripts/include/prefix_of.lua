--! fragment prefix_of lock
--
-- What the keys of a read-write lock's readers begin with. A name with braces of its own gets no more braces.
local prefix = '{' .. lock .. '}'
if string.find(lock, '{', 1, true) then
  prefix = lock
end
