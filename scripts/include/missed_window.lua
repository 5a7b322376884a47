--! fragment missed_window missed length misses pause seen now
--
-- Bounds what is kept of a foreign client's windows, which another may have written. A window that none of them used,
-- missed, makes the next one longer; after three there is a pause: a second if one was heard lately, otherwise shorter.
length = math.floor(math.min(math.max(length, 20), 200))
if missed then
  length, misses = math.min(2 * length, 200), misses + 1
end
if pause > now + 4000 then
  pause = 0
end
if misses >= 3 then
  misses, pause = 0, now + (seen > now and 1000 or 16 * length)
end
