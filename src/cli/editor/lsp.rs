//! `barewave lsp`: a language server for AMDGPU assembly, over standard input and output.
//!
//! It tells what `barewave asm` would tell, shows instructions as `barewave isa show` does, completes names of the target,
//! and finds labels. The target is what the source names with `.amdgcn_target`; else what the client sets
//! (`initializationOptions.target`, setting `barewave.target`), else `--target`.

use super::text::{self, Columns, definitions, range, starts_statement, word_at};
use crate::disasm::{Broken, ModeArgs, assembled};
use crate::isa;
use crate::{Failure, Result};
use barewave::codeobj::Abi;
use barewave_isa::{AsmError, DIRECTIVES, KERNEL_DIRECTIVES, Target};
use lsp_server::{Connection, ErrorCode, Message, Notification, ProtocolError, Request, Response};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, stdin, stdout};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread;

/// A language server for AMDGPU assembly: diagnostics, hover, completion, jump to label.
///
/// Editors start it; README, "Editors", says how. Example: barewave lsp --target gfx942
#[derive(clap::Args)]
pub struct Args {
    /// Target of sources that do not name theirs with .amdgcn_target, where the client sets none.
    #[arg(long)]
    target: Option<String>,
    /// Talk over standard input and output (the only way; editors may say so).
    #[arg(long)]
    stdio: bool,
}

struct Server {
    connection: Connection,
    columns: Columns,
    /// Target of sources that name none.
    target: Option<Target>,
    documents: BTreeMap<String, String>,
}

pub fn run(args: &Args) -> Result {
    let target = args.target.as_deref().map(Target::parse).transpose().map_err(Failure::usage)?;
    let (connection, client) = Connection::memory();
    let Connection { sender, receiver } = client;
    // Why no more messages come, where that is the client's fault: known before the last one is waited for.
    let trouble = Arc::new(OnceLock::new());
    let told = trouble.clone();
    // It may wait for input when all else is done: nobody waits for it.
    thread::spawn(move || {
        if let Err(e) = receive(&mut stdin().lock(), |m| sender.send(m).is_ok()) {
            let _ = told.set(format!("the client's message cannot be read: {e}"));
        }
    });
    let writer = thread::spawn(move || receiver.into_iter().try_for_each(|m| m.write(&mut stdout().lock())));
    let served = serve(connection, target);
    if let Some(message) = trouble.get() {
        return Err(Failure::new(message));
    }
    served?;
    Ok(writer.join().unwrap_or(Ok(()))?)
}

/// Bytes of a message at most; sources are not that long.
const MOST_BYTES: u64 = 1 << 28;
/// Bytes of what stands in front of a message.
const MOST_HEADER: u64 = 1 << 12;

/// Reads messages until they end or nobody wants more. The lengths that they claim are believed up to a bound.
fn receive(from: &mut impl BufRead, mut wanted: impl FnMut(Message) -> bool) -> io::Result<()> {
    let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
    loop {
        let mut header = Vec::new();
        while !header.ends_with(b"\r\n\r\n") {
            let room = MOST_HEADER.saturating_sub(header.len() as u64);
            if from.take(room).read_until(b'\n', &mut header)? == 0 {
                return if header.is_empty() { Ok(()) } else { Err(damaged("its header has no end")) };
            }
        }
        let text = String::from_utf8_lossy(&header).to_ascii_lowercase();
        let length = text.lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse::<u64>().ok());
        let length = length.ok_or_else(|| damaged("its header has no Content-Length"))?;
        if length > MOST_BYTES {
            return Err(damaged(&format!("it claims {length} bytes, {MOST_BYTES} are read at most")));
        }
        match Message::read(&mut header.chain(from.take(length)))? {
            Some(message) => {
                let last = matches!(&message, Message::Notification(n) if n.method == "exit");
                if !wanted(message) || last {
                    return Ok(());
                }
            }
            None => return Ok(()),
        }
    }
}

/// What to say of a client that ends before both know each other.
fn left(e: ProtocolError) -> Failure {
    if e.channel_is_disconnected() {
        let how =
            "editors start this command and talk to it over standard input and output; README, \"Editors\", says how";
        return Failure::new(format!("the input ended before a client had said what it wants: {how}"));
    }
    Failure::new(e)
}

fn serve(connection: Connection, target: Option<Target>) -> Result {
    let (id, params) = connection.initialize_start().map_err(left)?;
    let offered = params["capabilities"]["general"]["positionEncodings"].as_array();
    let utf8 = offered.is_some_and(|list| list.iter().any(|e| e == "utf-8"));
    let capabilities = json!({
        "capabilities": {
            "positionEncoding": if utf8 { "utf-8" } else { "utf-16" },
            "textDocumentSync": { "openClose": true, "change": 1 },
            "hoverProvider": true,
            "completionProvider": { "triggerCharacters": ["."] },
            "definitionProvider": true,
        },
        "serverInfo": { "name": "barewave", "version": env!("CARGO_PKG_VERSION") },
    });
    connection.initialize_finish(id, capabilities).map_err(left)?;
    let columns = if utf8 { Columns::Utf8 } else { Columns::Utf16 };
    let mut server = Server { connection, columns, target, documents: BTreeMap::new() };
    server.configure(&params["initializationOptions"]);
    server.serve()
}

impl Server {
    fn serve(&mut self) -> Result {
        while let Ok(message) = self.connection.receiver.recv() {
            match message {
                Message::Request(request) => {
                    if self.connection.handle_shutdown(&request)? {
                        return Ok(());
                    }
                    self.answer(request);
                }
                Message::Notification(n) => {
                    // A defect met in one source must not end the server.
                    let _ = catch_unwind(AssertUnwindSafe(|| self.notice(n)));
                }
                Message::Response(_) => {}
            }
        }
        Ok(())
    }

    fn send(&self, message: impl Into<Message>) {
        // Fails when the client is gone; then receiving ends too.
        let _ = self.connection.sender.send(message.into());
    }

    fn answer(&self, request: Request) {
        let Request { id, method, params } = request;
        let answer = catch_unwind(AssertUnwindSafe(|| match method.as_str() {
            "textDocument/hover" => Some(self.hover(&params)),
            "textDocument/completion" => Some(self.complete(&params)),
            "textDocument/definition" => Some(self.definition(&params)),
            _ => None,
        }));
        self.send(match answer {
            Ok(Some(value)) => Response::new_ok(id, value.unwrap_or(Value::Null)),
            Ok(None) => Response::new_err(id, ErrorCode::MethodNotFound as i32, format!("'{method}' is not served")),
            Err(_) => Response::new_err(id, ErrorCode::InternalError as i32, format!("'{method}' failed")),
        });
    }

    fn notice(&mut self, n: Notification) {
        let document = &n.params["textDocument"];
        let uri = document["uri"].as_str().unwrap_or_default().to_string();
        match n.method.as_str() {
            "textDocument/didOpen" => {
                self.documents.insert(uri.clone(), document["text"].as_str().unwrap_or_default().to_string());
                self.diagnose(&uri);
            }
            "textDocument/didChange" => {
                // The whole text, as was agreed.
                let change = n.params["contentChanges"].as_array().and_then(|c| c.last());
                if let Some(text) = change.and_then(|c| c["text"].as_str()) {
                    self.documents.insert(uri.clone(), text.to_string());
                    self.diagnose(&uri);
                }
            }
            "textDocument/didClose" => {
                self.documents.remove(&uri);
                self.publish(&uri, &[]);
            }
            "workspace/didChangeConfiguration" => {
                self.configure(&n.params["settings"]["barewave"]);
                let open: Vec<String> = self.documents.keys().cloned().collect();
                open.iter().for_each(|uri| self.diagnose(uri));
            }
            _ => {}
        }
    }

    /// Takes the client's target.
    fn configure(&mut self, settings: &Value) {
        let Some(name) = settings["target"].as_str().filter(|n| !n.is_empty()) else { return };
        match Target::parse(name) {
            Ok(target) => self.target = Some(target),
            Err(e) => {
                let params = json!({ "type": 1, "message": format!("barewave.target: {e}") });
                self.send(Notification::new("window/showMessage".into(), params));
            }
        }
    }

    fn target_of(&self, text: &str) -> Option<Target> {
        text::target(text).or(self.target)
    }

    fn publish(&self, uri: &str, diagnostics: &[Value]) {
        let params = json!({ "uri": uri, "diagnostics": diagnostics });
        self.send(Notification::new("textDocument/publishDiagnostics".into(), params));
    }

    /// Assembles a source and tells the mistakes.
    fn diagnose(&self, uri: &str) {
        let Some(text) = self.documents.get(uri) else { return };
        let whole = |severity: u8, message: String| {
            let end = text.lines().next().map_or(0, str::len);
            let range = range(self.columns, text, 0, 0..end);
            vec![json!({ "range": range, "severity": severity, "source": "barewave", "message": message })]
        };
        let Some(target) = self.target_of(text) else {
            let message =
                "no target: name it with .amdgcn_target \"amdgcn-amd-amdhsa--gfx942\", or set barewave.target";
            return self.publish(uri, &whole(2, message.into()));
        };
        let diagnostics = match assembled(target, &ModeArgs::default(), text, Abi::V5) {
            Ok(_) => Vec::new(),
            Err(Broken::Source(errors)) => errors.iter().map(|e| self.diagnostic(uri, text, e)).collect(),
            Err(Broken::Link(e)) => whole(1, e.to_string()),
        };
        self.publish(uri, &diagnostics);
    }

    fn diagnostic(&self, uri: &str, text: &str, e: &AsmError) -> Value {
        let place = |line: usize, column: usize, end: usize| {
            range(self.columns, text, line.saturating_sub(1), column.saturating_sub(1)..end.saturating_sub(1))
        };
        let related = e.related.iter().map(|r| {
            let location = json!({ "uri": uri, "range": place(r.line, r.column, r.end) });
            json!({ "location": location, "message": r.message })
        });
        json!({
            "range": place(e.line, e.column, e.end), "severity": 1, "source": "barewave", "message": e.message,
            "relatedInformation": related.collect::<Vec<_>>(),
        })
    }

    /// The document, the line and the byte in it that a request is about.
    fn place<'s>(&'s self, params: &Value) -> Option<(&'s str, usize, &'s str, usize)> {
        let text = self.documents.get(params["textDocument"]["uri"].as_str()?)?;
        let number = params["position"]["line"].as_u64()? as usize;
        let line = text.lines().nth(number).unwrap_or("");
        let column = params["position"]["character"].as_u64()? as usize;
        Some((text, number, line, self.columns.to_byte(line, column)))
    }

    fn hover(&self, params: &Value) -> Option<Value> {
        let (text, number, line, byte) = self.place(params)?;
        let word = word_at(line, byte);
        let markdown = |value: String| json!({ "contents": { "kind": "markdown", "value": value } });
        let target = self.target_of(text);
        if let Some(op) = isa::op_of(&word.to_ascii_lowercase(), target) {
            // Where the target has it, it is the target's page.
            let only = target.filter(|t| t.op(op).is_some());
            return Some(markdown(format!("```text\n{}```", isa::shown(op, only))));
        }
        let defined = definitions(text);
        let found = text::find(&defined, word, number)?;
        let line = text.lines().nth(found.line).unwrap_or("").trim();
        Some(markdown(format!("line {}\n```text\n{line}\n```", found.line + 1)))
    }

    fn complete(&self, params: &Value) -> Option<Value> {
        let (text, _, line, byte) = self.place(params)?;
        let before = line.get(..byte)?;
        let word = word_at(before, byte);
        let item = |label: &str, kind: u8, detail: &str| json!({ "label": label, "kind": kind, "detail": detail });
        const FUNCTION: u8 = 3;
        const VARIABLE: u8 = 6;
        const KEYWORD: u8 = 14;
        let mut items = Vec::new();
        let matches = |name: &str| name.starts_with(word);
        if starts_statement(&before[..before.len() - word.len()]) {
            if let Some(target) = self.target_of(text) {
                let named = isa::ops(target).filter(|i| matches(i.name));
                items.extend(named.map(|i| item(i.name, FUNCTION, &isa::operands(i))));
            }
            let kernel = KERNEL_DIRECTIVES.iter().map(|d| format!(".amdhsa_{d}"));
            let all = DIRECTIVES.iter().map(|d| d.to_string()).chain(kernel);
            items.extend(all.filter(|d| matches(d)).map(|d| item(&d, KEYWORD, "")));
        } else {
            let defined = definitions(text);
            items.extend(defined.iter().filter(|d| matches(d.name)).map(|d| item(d.name, VARIABLE, "")));
        }
        Some(json!({ "isIncomplete": true, "items": items }))
    }

    fn definition(&self, params: &Value) -> Option<Value> {
        let (text, number, line, byte) = self.place(params)?;
        let defined = definitions(text);
        let found = text::find(&defined, word_at(line, byte), number)?;
        let range = range(self.columns, text, found.line, found.bytes.clone());
        Some(json!({ "uri": params["textDocument"]["uri"], "range": range }))
    }
}
