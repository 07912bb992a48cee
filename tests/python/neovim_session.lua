-- Drives a debug session as a user of nvim-dap does, inside a headless Neovim, and writes what the editor then shows as JSON.
-- The file is read by test_dap_neovim.py, which puts a table `given` (configuration, script, python, how, answers) before it.
local dap = require("dap")
local shown = { notes = {} }
local patience = 30000  -- milliseconds

vim.notify = function(text) table.insert(shown.notes, text) end

local function wait(what, condition)
  if not vim.wait(patience, condition, 5) then error("waited in vain until " .. what) end
end

local seen_frame  -- the editor keeps the last one until it knows the next

local function stop_of(session)
  local frame = session.current_frame
  return session.stopped_thread_id and frame and frame ~= seen_frame and frame.scopes and frame
end

local function stopped(what)
  wait("it stops: " .. what, function() return dap.session() and stop_of(dap.session()) end)
  local session = dap.session()
  local frame, thread = session.current_frame, session.threads[session.stopped_thread_id]
  local at = { name = frame.name, line = frame.line, path = frame.source.path, cursor = vim.api.nvim_win_get_cursor(0)[1], locals = {}, frames = {}, thread = thread.name }
  seen_frame = frame
  wait("its locals are there", function() return frame.scopes[1].variables ~= nil end)
  for name, variable in pairs(frame.scopes[1].variables) do at.locals[variable.name or name] = variable.value end
  for _, one in ipairs(thread.frames) do table.insert(at.frames, one.name .. ":" .. one.line) end
  return at
end

local function asked(command, arguments)
  local answer
  dap.session():request(command, arguments, function(err, body) answer = { body = body, error = err and (err.message or tostring(err)) } end)
  wait(command .. " is answered", function() return answer ~= nil end)
  return answer.error and { error = answer.error } or answer.body
end

local function evaluated(expression)
  local answer
  dap.session():evaluate(expression, function(err, body) answer = { result = body and body.result, error = err and err.message } end)
  wait(expression .. " is evaluated", function() return answer ~= nil end)
  return answer.result or answer.error
end

local function repl_text()
  for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
    if vim.bo[buffer].filetype == "dap-repl" then return table.concat(vim.api.nvim_buf_get_lines(buffer, 0, -1, false), "\n") end
  end
  return ""
end

local function typed(keys)
  vim.api.nvim_feedkeys(vim.api.nvim_replace_termcodes(keys, true, false, true), "xt", false)
end

local function breakpoint(line, ...)
  vim.api.nvim_win_set_cursor(0, { line, 0 })
  dap.set_breakpoint(...)
end

local function ended()
  wait("the session is gone", function() return dap.session() == nil end)
end

local scenarios = {}

function scenarios.launch()
  breakpoint(5, "step == 3")
  breakpoint(10, nil, nil, "at {step}")
  dap.run(vim.tbl_extend("force", dap.configurations.python[1], { python = given.python }))
  shown.first = stopped("the condition holds")
  shown.capabilities = dap.session().capabilities
  shown.evaluated, shown.refused = evaluated("step * 2"), evaluated("1 / 0")
  dap.repl.open({}, "belowright split")
  vim.cmd("wincmd p")
  typed("Alen(values) + 100\r")
  wait("the console answers", function() return repl_text():find("103", 1, true) ~= nil end)
  vim.cmd("wincmd p")
  local scope = dap.session().current_frame.scopes[1].variablesReference
  shown.set = asked("setVariable", { variablesReference = scope, name = "sigma", value = "0.75" }).value
  shown.completed = asked("completions", { frameId = dap.session().current_frame.id, text = "values.app", column = 11 }).targets[1].label
  dap.step_over()
  shown.after_step = stopped("after a step")
  dap.up()
  shown.caller = stopped("in the caller")
  dap.down()
  stopped("back in the function")
  dap.step_out()
  shown.after_out = stopped("after the function")
  dap.restart()
  shown.again = stopped("after the restart")
  dap.clear_breakpoints()
  wait("nothing is set", function() return next(require("dap.breakpoints").get()) == nil end)
  local terminated
  dap.listeners.before.event_terminated["test"] = function() terminated = true end
  dap.listeners.before.event_exited["test"] = function(_, body) shown.exit_code = body.exitCode end
  dap.continue()
  wait("the program has ended", function() return terminated end)
  shown.repl = repl_text()
  ended()
end

function scenarios.terminate()
  dap.listeners.after.event_output["test"] = function(_, body) shown.up = (shown.up or "") .. body.output end
  dap.run(vim.tbl_extend("force", dap.configurations.python[1], { python = given.python }))
  wait("the program is up", function() return shown.up and shown.up:find("up", 1, true) end)
  dap.session():update_threads(function() end)
  wait("a thread is known", function() return next(dap.session().threads) ~= nil end)
  local thread = next(dap.session().threads)
  dap.pause(thread)
  wait("it is paused", function() return dap.session().threads[thread].frames ~= nil end)
  shown.paused = dap.session().threads[thread].frames[1]
  shown.pid = asked("evaluate", { expression = "__import__('os').getpid()", frameId = shown.paused.id }).result
  dap.terminate()
  ended()
end

function scenarios.tensor()
  breakpoint(3)
  dap.run(vim.tbl_extend("force", dap.configurations.python[1], { python = given.python }))
  shown.first = stopped("where the tensor is made")
  shown.hover = evaluated("x")
  local picture = asked("lockstep/tensorPicture", { expression = "x", frameId = dap.session().current_frame.id })
  shown.picture = { png = picture.png, width = picture.width, height = picture.height }
  dap.terminate()
  ended()
end

function scenarios.attach()
  breakpoint(4, "count == 50")
  dap.run(dap.configurations.python[2])
  shown.first = stopped("at the entry")
  dap.continue()
  shown.second = stopped("where the editor's breakpoint is")
  dap.disconnect()
  ended()
end

local good, problem = pcall(function()
  vim.cmd("edit " .. vim.fn.fnameescape(given.script))
  vim.bo.filetype = "python"
  loadstring(given.configuration)()
  scenarios[given.how]()
end)
if not good then shown.problem = tostring(problem) end
local file = assert(io.open(given.answers, "w"))
file:write(vim.fn.json_encode(shown))
file:close()
vim.cmd("qall!")
