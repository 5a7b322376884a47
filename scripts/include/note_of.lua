--! fragment note_of lock
--
-- The key that notes since when an owner has a lock: renewals write it, and describe reads it. The key is not among
-- KEYS: a user without permission for it renews all the same, and since when is unknown then.
local note = 'mortise:1:held:{' .. lock .. '}'
if string.find(lock, '{', 1, true) then
  note = 'mortise:1:held:' .. lock .. ':'
end
