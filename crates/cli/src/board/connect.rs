//! `kiban connect`: connects standard input and output to a TCP stream on a running board.

use crate::board::control::unavailable_reason;
use crate::output::note;
use clap::Args;
use kiban_streams::Settings;
use kiban_tokio::{Attachment, Stream};
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

/// Connect standard input and output to a TCP stream of a running board.
///
/// The stream uses the board's addresses, routes and TCP, through shared memory. The board must run as the
/// same user, with a service of kind "attach" in its configuration. Bytes are copied in both directions
/// until both ends have closed.
#[derive(Args)]
#[command(after_help = "Examples:\
        \n  kiban connect 10.9.0.1:7\
        \n  printf 'GET / HTTP/1.0\\r\\n\\r\\n' | kiban connect 10.9.0.1:80\
        \n  kiban connect --listen 10.9.0.2:5000 > file     and, on another host:  nc 10.9.0.2 5000 < file\
        \n\nExit status: 0 if both ends closed the connection in order, 1 otherwise.")]
pub(crate) struct Connect {
    /// Where to connect, or where to listen: HOST:PORT.
    address: String,
    /// Listen at this address of the board, and accept one connection.
    #[arg(long)]
    listen: bool,
    /// Name of the board; needed only if several are running.
    #[arg(long)]
    board: Option<String>,
}

impl Connect {
    pub(crate) fn run(self) -> Result<ExitCode, String> {
        let runtime = kiban_tokio::runtime::build(tokio::runtime::Builder::new_current_thread().enable_all());
        let runtime = runtime.map_err(|error| format!("cannot set up event polling: {error}"))?;
        let ended = runtime.block_on(async {
            let board = self.board.as_deref();
            let one = Settings { streams: 1, ..Settings::default() };
            let board = Attachment::attach_with(board, one)
                .await
                .map_err(|error| unavailable_reason(board, "attach", &error.to_string()))?;
            let address = tokio::net::lookup_host(&self.address).await.map(|mut found| found.next());
            let address: SocketAddr = address.ok().flatten().ok_or_else(|| {
                format!(
                    "{}: unknown host or missing port: write HOST:PORT, such as 10.9.0.1:80",
                    self.address
                )
            })?;
            let say = |error: std::io::Error| format!("{}: {error}", self.address);
            let stream = if self.listen {
                let listener = board.listen(address).await.map_err(say)?;
                if address.port() == 0 {
                    note!("kiban: listening on {}", listener.local_addr());
                }
                listener.accept().await.map_err(say)?.0
            } else {
                board.connect(address).await.map_err(say)?
            };
            exchange(stream).await.map_err(say)
        });
        // The thread that reads standard input may block forever, so do not wait for it.
        runtime.shutdown_background();
        ended.map(|()| ExitCode::SUCCESS)
    }
}

/// Size in bytes of the pieces passed between a thread and the stream, and the maximum number queued.
const PIECE_BYTES: usize = 1 << 16;
const PIECES_MAX: usize = 4;

/// Copies in both directions until both have ended. Standard input and output each have a thread, because
/// tokio's versions panic if no thread can be created.
async fn exchange(stream: Stream) -> std::io::Result<()> {
    let (mut from, mut to) = tokio::io::split(stream);
    let (read, mut pieces) = mpsc::channel::<std::io::Result<Vec<u8>>>(PIECES_MAX);
    let reading = kiban_tokio::runtime::blocking(c"stdin", move || {
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            let piece = match std::io::stdin().read(&mut piece) {
                Ok(0) => return,
                Ok(count) => {
                    piece.truncate(count);
                    Ok(piece)
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let is_last = piece.is_err();
            if read.blocking_send(piece).is_err() || is_last {
                return;
            }
        }
    })?;
    let (write, mut written) = mpsc::channel::<Vec<u8>>(PIECES_MAX);
    let writing = kiban_tokio::runtime::blocking(c"stdout", move || {
        let mut stdout = std::io::stdout().lock();
        while let Some(piece) = written.blocking_recv() {
            stdout.write_all(&piece)?;
            stdout.flush()?;
        }
        Ok(())
    })?;
    let out = async {
        while let Some(piece) = pieces.recv().await {
            to.write_all(&piece?).await?;
        }
        // The reading thread has passed on all its data; wait for it to exit.
        let _ = reading.await;
        to.shutdown().await
    };
    let out = async { out.await.map_err(Some) };
    let back = async {
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            let count = from.read(&mut piece).await?;
            piece.truncate(count);
            // If the writing thread has failed, its error is returned below.
            if count == 0 || write.send(piece).await.is_err() {
                break;
            }
        }
        drop(write);
        writing.await.map_err(std::io::Error::other)?
    };
    // On standard output, a broken pipe means that the reader has closed the pipe, which is not an error. On
    // the stream, it means that the stream was reset, which is an error.
    let is_ours = |error: &std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
    let back = async { back.await.map_err(|error| (!is_ours(&error)).then_some(error)) };
    match tokio::try_join!(out, back) {
        Ok(_) | Err(None) => Ok(()),
        Err(Some(error)) => Err(error),
    }
}
