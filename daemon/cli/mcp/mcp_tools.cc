#include "daemon/cli/mcp/mcp_tools.h"

#include <map>
#include <utility>

#include "api/json_document.h"
#include "api/problem.h"
#include "daemon/cli/mcp/mcp_sessions.h"
#include "session/base/error.h"

namespace escrow::daemon {

namespace {

using Tool = api::McpAnswer (*)(const McpSettings& settings, api::RequestFields& fields);

struct OfferedTool {
  api::McpTool described;
  Tool tool;
};

// Of the session and of files in it, the same in every tool.
#define ESCROW_MCP_SESSION \
  R"("session": {"type": "string", "description": "The session's id, or a unique prefix of it"})"
#define ESCROW_MCP_PATH \
  R"("path": {"type": "string", "description": "From the session's root, without a leading slash"})"

const std::vector<OfferedTool>& offered_tools() {
  static const std::vector<OfferedTool> kTools = {
      {{.name = "open_session",
        .title = "Open a session",
        .description =
            "Opens a session: a private, writable copy of the branch's newest commit. Nothing that is written into it "
            "is seen elsewhere before it is committed. It stays open, also when this connection ends, until commit or "
            "rollback.",
        .schema = R"({"type": "object", "additionalProperties": false, "properties": {
            "branch": {"type": "string", "description": "Default: the repository's own"},
            "path_prefix": {"type": "string",
                            "description": "The directory that is the session's root; default: all"}}})"},
       mcp_open_session},
      {{.name = "list_sessions",
        .title = "List sessions",
        .description =
            "The sessions that these tools have opened, newest first, with their state and what can be done next; with "
            "state awaiting_approval those that wait for a person's review.",
        .schema = R"({"type": "object", "additionalProperties": false, "properties": {
            "state": {"type": "string", "enum": ["open", "awaiting_approval", "committing", "committed",
                                                 "commit_failed", "rolled_back"]},
            "session": {"type": "string", "description": "Only this one: its id, or the beginning of it"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 200, "default": 20}}})",
        .only_reads = true},
       mcp_list_sessions},
      {{.name = "list_files",
        .title = "List a directory",
        .description = "The names in a directory of a session, with their kinds and sizes; not what is below.",
        .schema = R"({"type": "object", "additionalProperties": false, "required": ["session"], "properties": {
            )" ESCROW_MCP_SESSION R"(,
            "path": {"type": "string", "description": "The directory, from the session's root; default: the root"},
            "after": {"type": "string", "description": "The next_after of the answer before, for the names behind it"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 200}}})",
        .only_reads = true},
       mcp_list_files},
      {{.name = "read_file",
        .title = "Read a file",
        .description =
            "A part of a file's content, as a text of its own behind the first one, which says how large the file is "
            "and where to read on (next_offset). What is not UTF-8 comes as base64. Of a symbolic link: its target.",
        .schema = R"({"type": "object", "additionalProperties": false, "required": ["session", "path"], "properties": {
            )" ESCROW_MCP_SESSION "," ESCROW_MCP_PATH R"(,
            "side": {"type": "string", "enum": ["session", "base"], "default": "session",
                     "description": "base: as it was before the session changed it"},
            "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "In bytes"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 200000, "default": 16000,
                      "description": "In bytes"}}})",
        .only_reads = true},
       mcp_read_file},
      {{.name = "write_file",
        .title = "Write a file",
        .description =
            "Makes a file's whole content what is given, in the session. Directories on the way are made. An existing "
            "file keeps its mode unless executable says otherwise.",
        .schema = R"({"type": "object", "additionalProperties": false, "required": ["session", "path"],
          "oneOf": [{"required": ["content"]}, {"required": ["content_base64"]}], "properties": {
            )" ESCROW_MCP_SESSION "," ESCROW_MCP_PATH R"(,
            "content": {"type": "string"},
            "content_base64": {"type": "string", "description": "Instead of content, for bytes that are not UTF-8"},
            "executable": {"type": "boolean"}}})"},
       mcp_write_file},
      {{.name = "delete_file",
        .title = "Delete a file",
        .description = "Removes a file, a symbolic link or an empty directory, in the session.",
        .schema = R"({"type": "object", "additionalProperties": false, "required": ["session", "path"], "properties": {
            )" ESCROW_MCP_SESSION "," ESCROW_MCP_PATH R"(}})"},
       mcp_delete_file},
      {{.name = "run_command",
        .title = "Run a command",
        .description =
            "Runs a command whose working directory is the session's root, confined: it sees the session and the "
            "programs of the machine, and writes nowhere else. With session it runs in that open session, which stays "
            "open and keeps what the command wrote, also when it fails. Without session it has one of its own: exit "
            "status 0 commits it, or seals it for a reviewer, and anything else rolls it back. The last bytes of its "
            "output come as texts of their own.",
        .schema = R"({"type": "object", "additionalProperties": false,
          "oneOf": [{"required": ["command"]}, {"required": ["argv"]}], "properties": {
            "session": {"type": "string", "description": "The open session to run in; default: one of its own"},
            "command": {"type": "string", "description": "A line for sh"},
            "argv": {"type": "array", "items": {"type": "string"}, "minItems": 1,
                     "description": "Instead of command: a program and its arguments"},
            "env": {"type": "object", "additionalProperties": {"type": "string"}},
            "timeout_s": {"type": "integer", "minimum": 1, "maximum": 86400, "default": 600},
            "output_bytes": {"type": "integer", "minimum": 0, "maximum": 100000, "default": 4000,
                             "description": "So many of the last bytes of each stream"},
            "message": {"type": "string", "description": "Without session: of the commit"},
            "branch": {"type": "string", "description": "Without session, as open_session has it"},
            "path_prefix": {"type": "string", "description": "Without session, as open_session has it"}}})"},
       mcp_run_command},
      {{.name = "diff",
        .title = "Show the changes",
        .description =
            "What a commit of the session would change; of a sealed session its result. First the names: a letter "
            "(A added, M modified, D deleted, R renamed) and a path from the repository's root on each line.",
        .schema = R"({"type": "object", "additionalProperties": false, "required": ["session"], "properties": {
            )" ESCROW_MCP_SESSION R"(,
            "format": {"type": "string", "enum": ["name_status", "stat", "patch"], "default": "name_status",
                       "description": "stat counts lines, patch shows them"},
            "path": {"type": "string",
                     "description": "Only this file, or what is below this directory; from the session's root"},
            "since": {"type": "string", "description": "A savepoint: only what was done since"},
            "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "In bytes of the text"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 200000, "default": 8000,
                      "description": "In bytes of the text"}}})",
        .only_reads = true},
       mcp_diff},
      {{.name = "savepoint",
        .title = "Keep this moment",
        .description =
            "Keeps what the session has now under a name, to look at what was done since (diff with since) and to go "
            "back to (restore). Costs next to nothing: make one before each risky step. Savepoints end with their "
            "session. Returns all of them, the oldest first.",
        .schema = R"({"type": "object", "additionalProperties": false, "required": ["session", "name"], "properties": {
            )" ESCROW_MCP_SESSION R"(,
            "name": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"}}})"},
       mcp_savepoint},
      {{.name = "restore",
        .title = "Go back to a savepoint",
        .description =
            "Makes the session what it was at a savepoint. Its present state becomes a savepoint first, named in undo. "
            "Savepoints do not hold caches: those that the session changed begin anew as last published (warning).",
        .schema = R"({"type": "object", "additionalProperties": false, "required": ["session", "name"], "properties": {
            )" ESCROW_MCP_SESSION R"(,
            "name": {"type": "string", "description": "Of the savepoint"}}})"},
       mcp_restore},
      {{.name = "update",
        .title = "Take in the branch's changes",
        .description =
            "Brings the session onto the branch's newest commit. Where both changed a path nothing is taken in, and "
            "the paths are listed; give the session's side of them up with discard.",
        .schema = R"({"type": "object", "additionalProperties": false, "required": ["session"], "properties": {
            )" ESCROW_MCP_SESSION R"(,
            "discard": {"type": "array", "items": {"type": "string"},
                        "description": "First take these paths, from the session's root, back to what they were"}}})"},
       mcp_update},
      {{.name = "commit",
        .title = "Commit",
        .description =
            "Ends the session with one commit of all its changes. Where a review is needed the result is sealed "
            "instead, and reaches the branch when a person approves it. A conflict changes nothing, and names the "
            "paths.",
        .schema = R"({"type": "object", "additionalProperties": false, "required": ["session"], "properties": {
            )" ESCROW_MCP_SESSION R"(,
            "message": {"type": "string", "description": "Of the commit: what was changed, and why"}}})"},
       mcp_commit},
      {{.name = "rollback",
        .title = "Roll back",
        .description = "Ends the session, or withdraws its sealed result: nothing of it is committed.",
        .schema = R"({"type": "object", "additionalProperties": false, "required": ["session"], "properties": {
            )" ESCROW_MCP_SESSION R"(}})"},
       mcp_rollback},
  };
  return kTools;
}

#undef ESCROW_MCP_SESSION
#undef ESCROW_MCP_PATH

api::McpAnswer refused_call(const std::string& code, const std::string& why) {
  return {.document = api::JsonObject().text("error", why).text("code", code).text(), .texts = {}, .is_error = true};
}

}  // namespace

const std::vector<api::McpTool>& mcp_tool_list() {
  static const std::vector<api::McpTool> kList = [] {
    std::vector<api::McpTool> list;
    for (const OfferedTool& offered : offered_tools()) list.push_back(offered.described);
    return list;
  }();
  return kList;
}

bool has_mcp_tool(const std::string& name) {
  for (const OfferedTool& offered : offered_tools()) {
    if (name == offered.described.name) return true;
  }
  return false;
}

std::string mcp_instructions(const McpSettings& settings) {
  return std::string(
             "Escrow gives you sessions over a git repository: private copies in which you read and write files and "
             "run commands, and which end as one commit or leave nothing. Work like this: open_session, then "
             "list_files, read_file, write_file and run_command in it; look at your changes with diff; end it with "
             "commit, or with rollback. Results are small: ask for more with offset, limit and after. ") +
         (settings.commits_unreviewed
              ? "commit puts the changes on the branch."
              : "commit seals the result for a person to review: it reaches the branch only when it is approved. You "
                "cannot approve it; list_sessions shows what became of it.");
}

api::McpAnswer call_mcp_tool(const McpSettings& settings, const std::string& name, const std::string& arguments) {
  try {
    api::RequestFields fields(arguments, "the arguments object");
    for (const OfferedTool& offered : offered_tools()) {
      if (name == offered.described.name) return offered.tool(settings, fields);
    }
    return refused_call("not_found", "there is no tool " + name);
  } catch (const api::Problem& problem) {
    return refused_call(api::kind_of(problem.problem()).name, problem.what());
  } catch (const session::Error& error) {
    return refused_call(api::name_of(error.code()), error.what());
  } catch (const std::exception& error) {
    return refused_call("internal", std::string("escrow failed: ") + error.what());
  }
}

}  // namespace escrow::daemon
