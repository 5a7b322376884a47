--! fragment nest_of lock
--
-- The key of the deadlines of a lock's owners: see delegate_enter. The key is not among KEYS: only a lock of several
-- owners has it, so a user of other locks needs no permission for it.
local nest = 'mortise:1:nest:{' .. lock .. '}'
if string.find(lock, '{', 1, true) then
  nest = 'mortise:1:nest:' .. lock
end
