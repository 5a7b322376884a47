--! fragment missed_window missed length misses pause seen now
--
-- Bounds length and pause of foreign clients' windows, in ms: another program may have written them. missed: no
-- foreign client used the last window, so the next one is twice as long. After three missed windows in a row there is
-- a pause: a second if a foreign client was seen in the last 10 s, otherwise 16 windows.
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
