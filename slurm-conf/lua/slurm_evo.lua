-- slurm-evo for Slurm's Lua plugins. Lua 5.1 to 5.4, LuaJIT; whatever Slurm was built with.
--
-- At the end of job_submit.lua, behind the site's own functions, two lines:
--
--   local ok, evo = pcall(dofile, "/etc/slurm/slurm_evo.lua")
--   if ok then evo.hook_job_submit({ dir = "/var/lib/slurm-evo/plugin/alpha" }) end
--
-- and the same with evo.hook_cli_filter at the end of cli_filter.lua. The site's own functions run first and decide;
-- what slurm-evo adds can fail in no way that reaches them: every error means that nothing is done, with one line in
-- the log for each new reason.
--
-- The options, all but dir with a default that does nothing:
--   dir          the folder that the slurm-evo daemon writes: policy.lua, context, and places where the site has
--                [[hold_backs]]: a new job that is expected to run long then starts out on the other clusters of
--                its federation, with slurm-evo:held-back in AdminComment
--   site_factor  true: set SiteFactor at submission (not needed where the plugin site_factor/evo is)
--   pin          the name of this cluster: a federated job that names no clusters starts here only, so that the
--                daemon alone widens where it may run
--   stay         words in Comment, Extra or AdminComment that keep a job out; default those of the daemon
--   go           a word a job must carry to be touched at all; others get the word for staying in AdminComment
--   admins       user ids that may use reserved words; default { 0 }
--   tell         cli_filter: true: one line that says about when a job would start, and where

local M = { version = "1.1" }

local SECONDS_BETWEEN_LOOKS = 10
local LARGEST_FILE = 4194304
local PREFIX = "slurm-evo:"
local HELD_BACK = PREFIX .. "held-back"
local UNLIMITED_S = 365 * 86400.0

local options = {}
local complained = {}
local policy, policy_text, context, places, looked_at = nil, nil, nil, nil, nil

-- Files ---------------------------------------------------------------------------------------------------------

local MISSING = 2

-- The text of a file, or nil, why not, and the system's number for that.
local function read(path)
  local file, _, number = io.open(path, "rb")
  if not file then return nil, path .. " cannot be read", number end
  local text = file:read(LARGEST_FILE + 1) or ""
  file:close()
  if #text > LARGEST_FILE then return nil, path .. " is too large" end
  return text
end

-- A chunk of text that sees nothing but a little mathematics.
local function sandboxed(text, name)
  if text:byte(1) == 27 then return nil, name .. " is no text" end
  local world = { math = { abs = math.abs, sqrt = math.sqrt, log = math.log } }
  local chunk, why
  if setfenv then
    chunk, why = loadstring(text, name)
    if chunk then setfenv(chunk, world) end
  else
    chunk, why = load(text, name, "t", world)
  end
  -- what LuaJIT compiles does not count its steps: see bounded
  if chunk and jit then jit.off(chunk, true) end
  return chunk, why
end

-- Anything that runs for longer than this many steps is no policy.
local function bounded(f, ...)
  local arguments, count = { ... }, select("#", ...)
  debug.sethook(function() error("it does not end", 0) end, "", 1000000)
  local ok, result = pcall(function() return f((unpack or table.unpack)(arguments, 1, count)) end)
  debug.sethook()
  if not ok then return nil, tostring(result) end
  return result
end

-- A table with version, id and score, or nil and why not.
function M.read_policy(text, name)
  local chunk, why = sandboxed(text, name)
  if not chunk then return nil, why end
  local found
  found, why = bounded(chunk)
  if type(found) ~= "table" or found.version ~= 1 or type(found.score) ~= "function" then
    return nil, name .. " is no policy of version 1" .. (why and ": " .. why or "")
  end
  local ones = setmetatable({}, { __index = function() return 1.0 end })
  local score
  score, why = bounded(found.score, ones)
  if type(score) ~= "number" then return nil, name .. " gives no number: " .. tostring(why) end
  return found
end

local function decoded(name)
  return (name:gsub("%%(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end))
end

-- Why a text is no whole file of that kind and version 1, or nil.
local function flaw(text, kind)
  local head = "slurm-evo-" .. kind .. " 1\n"
  if text:sub(1, #head) ~= head then return "the " .. kind .. " file is of another version" end
  if not text:sub(-15):match("^crc32 %x%x%x%x%x%x%x%x\n$") then return "the " .. kind .. " file is cut off" end
  return nil
end

local TWO_WORDS = { weight = true, runtime = true, only = true, never = true }

-- What the daemon knows, or nil and why not. The lines about single jobs come last and are not for us.
function M.read_context(text)
  local why = flaw(text, "context")
  if why then return nil, why end
  local found = {
    load = 0.0, pressure = 0.0, weight = 1.0, band = 1000000, recalc = 60, time = 0,
    stay = {}, named = {}, only = {}, scores = {}, factors = {}, starts = {},
  }
  for line in text:gmatch("([^\n]*)\n") do
    local key, rest = line:match("^(%S+) (.*)$")
    if key == "job" or key == "crc32" then break end
    local topic, name, numbers = (rest or ""):match("^(%l+) (%S+) ?(.*)$")
    if TWO_WORDS[key] and name then
      found.named[key .. " " .. topic .. " " .. decoded(name)] = tonumber(numbers) or true
      if key == "only" then found.only[topic] = true end
    elseif key == "user" then
      local user, usage, pending = rest:match("^(%S+) (%S+) (%S+)$")
      if not user then return nil, "the context has a line that is not understood: " .. line end
      found.named["user " .. decoded(user)] = { tonumber(usage) or 0.0, tonumber(pending) or 0.0 }
    elseif key == "scale" then
      local score, factor = rest:match("^(%S+) (%S+)$")
      found.scores[#found.scores + 1] = assert(tonumber(score)) + 0.0
      found.factors[#found.factors + 1] = assert(tonumber(factor)) + 0.0
    elseif key == "start" then
      local cluster, gpus, seconds = rest:match("^(%S+) (%S+) (%S+)$")
      found.starts[#found.starts + 1] =
        { cluster = cluster, gpus = assert(tonumber(gpus)), seconds = assert(tonumber(seconds)) }
    elseif key == "stay" then
      found.stay[#found.stay + 1] = decoded(rest)
    elseif rest and type(found[key]) == "number" then
      found[key] = assert(tonumber(rest)) + 0.0
    end
  end
  return found
end

-- Which clusters long jobs are kept off, and where there is room for them instead, or nil and why not.
function M.read_places(text)
  local why = flaw(text, "places")
  if why then return nil, why end
  local found = { time = 0, good_s = 0, members = {}, backs = {}, standard = {}, rooms = {}, named = {} }
  for line in text:gmatch("([^\n]*)\n") do
    local key, rest = line:match("^(%S+) (.*)$")
    local head, name, numbers = (rest or ""):match("^(%S+) (%S+) ?(.*)$")
    if key == "time" or key == "good_s" then
      found[key] = assert(tonumber(rest))
    elseif key == "member" then
      found.members[#found.members + 1] = rest
    elseif key == "back" then
      found.backs[#found.backs + 1] = { cluster = head, over_s = assert(tonumber(name)) }
    elseif key == "default" then
      found.standard[head] = decoded(name)
    elseif key == "keep" or key == "apart" then
      found.named[key .. " " .. decoded(head) .. " " .. decoded(name)] = true
    elseif key == "room" then
      local limit, count, gpus, cpus, memory = numbers:match("^(%S+) (%d+) (%d+) (%d+) (%d+)$")
      local place = head .. " " .. decoded(name)
      found.rooms[place] = found.rooms[place] or {}
      table.insert(found.rooms[place], { limit = assert(tonumber(limit)), count = tonumber(count),
        gpus = tonumber(gpus), cpus = tonumber(cpus), memory = tonumber(memory) })
    end
  end
  return found
end

local function complain(why)
  why = tostring(why)
  if complained[why] then return end
  complained[why] = true
  -- sbatch shows its log to the submitting user, whom a broken file of the site's does not concern: -vv shows it
  local log = slurm and (options.tell == nil and slurm.log_info or slurm.log_debug)
  if log then log("slurm-evo: nothing is done: %s", why) end
end

-- The newest good places; none is no fault: the daemon writes them only where jobs are held back.
local function refresh_places()
  places = nil
  local text, why, number = read(options.dir .. "/places")
  if text then
    local ok, fresh, reason = pcall(M.read_places, text)
    places, why = ok and fresh or nil, ok and reason or fresh
  end
  if not places and number ~= MISSING then complain(why) end
end

-- The newest good policy and context; what cannot be read leaves the last good one in force.
local function refresh()
  local now = os.time()
  if looked_at and now - looked_at < SECONDS_BETWEEN_LOOKS and now >= looked_at then return end
  looked_at = now
  if not options.dir then return end
  local text, why = read(options.dir .. "/policy.lua")
  if text and text ~= policy_text then
    local fresh
    fresh, why = M.read_policy(text, options.dir .. "/policy.lua")
    if fresh then policy, policy_text = fresh, text end
  end
  if options.site_factor and not policy then complain(why) end
  text, why = read(options.dir .. "/context")
  if text and not (context and text:match("\ntime (%d+)") == context.stamp) then
    local ok, fresh, reason = pcall(M.read_context, text)
    if ok and fresh then
      fresh.stamp = text:match("\ntime (%d+)")
      context = fresh
    else
      why = ok and reason or fresh
    end
  end
  if why then complain(why) end
  if options.tell == nil then refresh_places() end
end

-- Jobs ----------------------------------------------------------------------------------------------------------

local function has_word(text, word)
  if not text or not text:find(word, 1, true) then return false end
  for found in text:gmatch("%S+") do
    if found == word then return true end
  end
  return false
end

local function stay_words()
  return options.stay or (context and context.stay) or { PREFIX .. "stay" }
end

local function stays(...)
  for _, word in ipairs(stay_words()) do
    for i = 1, select("#", ...) do
      if has_word((select(i, ...)), word) then return true end
    end
  end
  return false
end

-- A number that was given, or nil: Slurm says "not given" with a few large ones.
local function given(value)
  if type(value) ~= "number" or value >= 4294967293 or (slurm and value == slurm.NO_VAL16) then return nil end
  return value + 0.0
end

-- Devices in "gres/gpu:a100:2,gres:gpu=4"; 0 if there are none.
function M.gpus_of(request)
  local total = 0
  if not request or not request:find("gpu", 1, true) then return total end
  for entry in request:gsub("%b()", ""):gmatch("[^,]+") do
    entry = entry:match("^%s*(.-)%s*$"):gsub("^gres[/:]", "")
    if entry == "gpu" or entry:match("^gpu[:=]") then
      local count, unit = entry:match("[:=](%d+)([KMGTP]?)$")
      local power = ({ K = 1, M = 2, G = 3, T = 4, P = 5 })[unit or ""] or 0
      total = total + (tonumber(count) or 1) * 1024 ^ power
    end
  end
  return total
end

local function first(text) return (text or ""):match("^([^,]*)") end

local function partitions_of(job, partitions)
  if job.partition and job.partition ~= "" then return job.partition end
  for name, partition in pairs(partitions or {}) do
    if partition.flag_default == 1 then return partition.name or name end
  end
  return ""
end

local function limit_of(job, partitions, name)
  local minutes = given(job.time_limit)
  local partition = partitions and partitions[name]
  if not minutes and partition then minutes = given(partition.default_time) or given(partition.max_time) end
  return minutes and minutes * 60.0 or UNLIMITED_S
end

-- The kinds of job that slurm-evo never touches (daemon/slurm_evo_daemon/rules.py), as far as a submission shows them.
local function untouchable(job)
  return not job.script or (job.array_inx or "") ~= "" or given(job.het_job_offset) ~= nil
    or (job.dependency or "") ~= "" or (job.reservation or "") ~= "" or job.priority == 0
    or (given(job.begin_time) or 0) > os.time()
    or stays(job.comment, job.extra, job.admin_comment)
end

local function allowed(topic, name)
  local named = context.named
  return not named["never " .. topic .. " " .. name]
    and (not context.only[topic] or named["only " .. topic .. " " .. name] ~= nil)
end

-- The terminals of a job that is being submitted; its wait is 0.
function M.features(job, partitions)
  local all = partitions_of(job, partitions)
  local partition = first(all)
  local account = job.account or job.default_account or ""
  local qos = job.qos or job.default_qos or ""
  local user = job.user_name or ""
  for name in all:gmatch("[^,]+") do
    if not allowed("partition", name) then return nil end
  end
  if not (allowed("qos", qos) and allowed("account", account) and allowed("user", user)) then return nil end
  local named = context.named
  local nodes = given(job.min_nodes) or 1.0
  local tasks = given(job.num_tasks) or 1.0
  local cpus = math.max(given(job.min_cpus) or 1.0, tasks * (given(job.cpus_per_task) or 1.0))
  local gpus = math.max(
    M.gpus_of(job.tres_per_job),
    M.gpus_of(job.tres_per_node or job.gres) * math.max(nodes, 1.0),
    M.gpus_of(job.tres_per_task) * math.max(tasks, 1.0)
  )
  local limit = limit_of(job, partitions, partition)
  local share = named["runtime user " .. user] or named["runtime account " .. account]
    or named["runtime partition " .. partition] or 1.0
  local known = named["user " .. user] or { 0.0, 0.0 }
  return {
    wait = 0.0, limit = limit, runtime = math.max(limit * share, 1.0),
    gpus = gpus + 0.0, nodes = math.max(nodes, 1.0), cpus = math.max(cpus, 1.0),
    weight = context.weight * (named["weight qos " .. qos] or 1.0) * (named["weight partition " .. partition] or 1.0)
      * (named["weight account " .. account] or 1.0),
    user_usage = known[1], user_pending = math.max(known[2], gpus), load = context.load, pressure = context.pressure,
  }
end

-- What a cluster must have that is to run the job, per node; nil for a job whose needs are not all known here.
local OTHER_TEXTS = {
  "features", "prefer", "batch_features", "req_nodes", "exc_nodes", "licenses", "burst_buffer", "network",
  "tres_per_socket",
}
local OTHER_NUMBERS = {
  "sockets_per_node", "sockets_per_board", "boards_per_node", "cores_per_socket", "threads_per_core",
  "pn_min_tmp_disk", "core_spec", "ntasks_per_tres", "req_switch",
}

local function only_gpus(request)
  for entry in (request or ""):gmatch("[^,]+") do
    if not entry:gsub("^gres[/:]", ""):match("^gpu[:=]?%d*$") then return false end
  end
  return true
end

local function up(number) return math.ceil(number) + 0.0 end

function M.needs(job)
  for _, field in ipairs(OTHER_TEXTS) do
    if (job[field] or "") ~= "" then return nil end
  end
  for _, field in ipairs(OTHER_NUMBERS) do
    if (given(job[field]) or 0) ~= 0 then return nil end
  end
  if job.contiguous == 1 then return nil end
  local per_node = job.tres_per_node or job.gres
  for _, request in ipairs({ per_node or "", job.tres_per_job or "", job.tres_per_task or "",
    job.cpus_per_tres or "", job.mem_per_tres or "" }) do
    if not only_gpus(request) then return nil end
  end
  local nodes = math.max(given(job.min_nodes) or 1.0, 1.0)
  local tasks = up(math.max(given(job.num_tasks) or 1.0, (given(job.ntasks_per_node) or 0) * nodes, 1.0) / nodes)
  local gpus = math.max(
    M.gpus_of(per_node), up(M.gpus_of(job.tres_per_job) / nodes), M.gpus_of(job.tres_per_task) * tasks
  )
  local cpus = math.max(
    up((given(job.min_cpus) or 1.0) / nodes), tasks * math.max(given(job.cpus_per_task) or 1.0, 1.0),
    given(job.pn_min_cpus) or 0, M.gpus_of(job.cpus_per_tres) * gpus
  )
  local memory = math.max(
    given(job.min_mem_per_node) or 0, (given(job.min_mem_per_cpu) or 0) * cpus, M.gpus_of(job.mem_per_tres) * gpus
  )
  return { nodes = nodes, gpus = gpus, cpus = cpus, memory = memory }
end

-- It fits into every partition it may run in there: which one it will be given is Slurm's to choose.
local function has_room(cluster, asked, limit_s, needs)
  local all = asked ~= "" and asked or places.standard[cluster]
  if not all then return false end
  for name in all:gmatch("[^,]+") do
    local fits = false
    for _, room in ipairs(places.rooms[cluster .. " " .. name] or {}) do
      fits = fits or ((room.limit < 0 or limit_s <= room.limit) and needs.nodes <= room.count
        and needs.gpus <= room.gpus and needs.cpus <= room.cpus and needs.memory <= room.memory)
    end
    if not fits then return false end
  end
  return true
end

local function kept(job, all)
  local named = places.named
  local account = job.account or job.default_account or ""
  for name in all:gmatch("[^,]+") do
    if named["keep partition " .. name] then return true end
  end
  return named["keep qos " .. (job.qos or job.default_qos or "")] or named["keep account " .. account]
    or named["keep user " .. (job.user_name or "")] or named["apart " .. (job.user_name or "") .. " " .. account]
end

-- The clusters that a new job is to start out on, where the site keeps jobs like it off others; or nil.
function M.held_back(job, partitions, uid)
  if not (places and context) or (job.clusters or "") ~= "" then return nil end
  -- uid 0 is another cluster of the federation with a copy of a job, or somebody who submits for others
  if uid == 0 or uid ~= job.user_id then return nil end
  local age = os.time() - places.time
  if age > places.good_s or age < -places.good_s then return nil end
  local features, needs = M.features(job, partitions), M.needs(job)
  if not features or not needs or kept(job, partitions_of(job, partitions)) then return nil end
  local room, count = {}, 0
  for _, member in ipairs(places.members) do
    if has_room(member, job.partition or "", features.limit, needs) then
      room[member], count = true, count + 1
    end
  end
  local off = {}
  for _, back in ipairs(places.backs) do
    if features.runtime > back.over_s and room[back.cluster] and count > 1 then
      room[back.cluster], off[back.cluster], count = nil, true, count - 1
    end
  end
  if not next(off) then return nil end
  local left = {}
  for _, member in ipairs(places.members) do
    if not off[member] then left[#left + 1] = member end
  end
  return table.concat(left, ",")
end

local function add_to_admin_comment(job, word)
  job.admin_comment = (job.admin_comment or "") ~= "" and job.admin_comment .. " " .. word or word
end

-- The SiteFactor that puts a score among those of the last cycle; nil where there are none.
function M.place(score, scores, factors, band)
  local count = #scores
  if count == 0 then return nil end
  local low, high = 1, count + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if scores[middle] > score then high = middle else low = middle + 1 end
  end
  local factor
  if low == 1 then
    factor = factors[1] / 2
  elseif low == count + 1 then
    factor = (factors[count] + band + 1) / 2
  else
    local span = scores[low] / 2 - scores[low - 1] / 2
    local share = span > 0 and (score / 2 - scores[low - 1] / 2) / span or 0.5
    factor = factors[low - 1] + share * (factors[low] - factors[low - 1])
  end
  return math.floor(math.min(math.max(factor, 1), band))
end

-- Words that begin with slurm-evo: and are not for users; the text without them, or nil if there are none.
local function without_reserved(text)
  if not text or not text:find(PREFIX, 1, true) then return nil end
  local kept, dropped = {}, false
  for word in text:gmatch("%S+") do
    local free = word:sub(1, #PREFIX) ~= PREFIX or word == options.go
    for _, stay in ipairs(stay_words()) do free = free or word == stay end
    if free then kept[#kept + 1] = word else dropped = true end
  end
  if dropped then return table.concat(kept, " ") end
  return nil
end

local function is_admin(uid)
  for _, admin in ipairs(options.admins or { 0 }) do
    if admin == uid then return true end
  end
  return false
end

local function drop_reserved(job, uid)
  if is_admin(uid) then return end
  for _, field in ipairs({ "comment", "extra" }) do
    local clean = without_reserved(job[field])
    if clean then
      job[field] = clean
      if slurm.log_user then
        slurm.log_user("slurm-evo: words beginning with %s are the site's and were taken out of --%s", PREFIX, field)
      end
    end
  end
end

local function submit(job, partitions, uid)
  refresh()
  drop_reserved(job, uid)
  if options.go and not (has_word(job.comment, options.go) or has_word(job.extra, options.go)) then
    local word = stay_words()[1]
    if word and not stays(job.admin_comment) then add_to_admin_comment(job, word) end
    return
  end
  if untouchable(job) then return end
  local ok, left = pcall(M.held_back, job, partitions, uid)
  if not ok then complain(left) end
  if ok and left then
    -- the mark first: with it the daemon gives back whatever is taken
    add_to_admin_comment(job, HELD_BACK)
    job.clusters = left
  end
  if options.pin and (job.clusters or "") == "" then job.clusters = options.pin end
  if not (options.site_factor and policy and context) then return end
  local features = M.features(job, partitions)
  local score = features and policy.score(features)
  local factor = score and M.place(score, context.scores, context.factors, context.band)
  if factor then job.site_factor = factor end
end

-- Hooks ---------------------------------------------------------------------------------------------------------

local function set_options(new)
  options = new or {}
  policy, policy_text, context, places, looked_at, complained = nil, nil, nil, nil, nil, {}
end

-- Run a function of ours; whatever goes wrong ends here.
local function quietly(f, ...)
  local ok, why = pcall(f, ...)
  if not ok then pcall(complain, why) end
  return ok
end

-- The site's function first; ours only if it let the job pass.
local function behind(name, ours)
  local theirs = rawget(_G, name)
  _G[name] = function(...)
    local result = slurm and slurm.SUCCESS or 0
    if theirs then result = theirs(...) end
    if result == nil or result == 0 or (slurm and result == slurm.SUCCESS) then quietly(ours, ...) end
    return result
  end
end

function M.hook_job_submit(new)
  set_options(new)
  behind("slurm_job_submit", submit)
  behind("slurm_job_modify", function(job, _, _, uid) drop_reserved(job, uid) end)
end

-- About when a job of so many devices would start: the least of all clusters, or nil.
function M.start(gpus, starts)
  local best
  for _, entry in ipairs(starts) do
    if entry.gpus >= gpus and (not best or entry.seconds < best.seconds
      or (entry.seconds == best.seconds and entry.gpus < best.gpus)) then
      best = entry
    end
  end
  return best
end

local function about(seconds)
  if seconds < 90 then return "a minute" end
  if seconds < 5400 then return string.format("%d minutes", math.floor(seconds / 60 + 0.5)) end
  if seconds < 172800 then return string.format("%d hours", math.floor(seconds / 3600 + 0.5)) end
  return string.format("%d days", math.floor(seconds / 86400 + 0.5))
end

-- The least number in "2", "2-4" or "a100:2"; nil if there is none.
local function count_of(text)
  text = tostring(text or ""):gsub("^%a[^:]*:", "")
  return tonumber((text:match("^(%d+)")))
end

local function tell(asked)
  if not options.tell then return end
  refresh()
  if not context or stays(asked.comment, asked.extra) then return end
  local nodes = count_of(asked.nodes) or 1
  local tasks = count_of(asked.ntasks) or nodes
  local gpus = math.max(
    M.gpus_of(asked.gres) * nodes, count_of(asked.gpus) or 0, (count_of(asked["gpus-per-node"]) or 0) * nodes,
    (count_of(asked["gpus-per-task"]) or 0) * tasks
  )
  local best = M.start(gpus, context.starts)
  if not best then return end
  local line = string.format("slurm-evo: a job of %d GPUs would now start in about %s, on %s\n", gpus,
    about(best.seconds), best.cluster)
  io.stderr:write(line)
end

function M.hook_cli_filter(new)
  set_options(new)
  options.tell = options.tell or false
  behind("slurm_cli_setup_defaults", function() end)
  behind("slurm_cli_pre_submit", tell)
  behind("slurm_cli_post_submit", function() end)
end

return M
