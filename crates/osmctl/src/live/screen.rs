//! The terminal. It is taken over for as long as the table is shown.

use std::io::{Write, stdin, stdout};

use anyhow::{Context, Result};
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// What Ctrl-Z sends.
pub const STOP: Signal = Signal::TSTP;

/// The alternate screen, without a cursor. What was on the terminal before stays as it is.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const ERASE_REST_OF_LINE: &str = "\x1b[K";
const ERASE_REST_OF_SCREEN: &str = "\x1b[J";

/// Size of a terminal that does not report one.
const USUAL: Size = Size {
    columns: 80,
    lines: 24,
};

/// Size of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub columns: usize,
    pub lines: usize,
}

/// The terminal while the table is shown. Dropping it gives the terminal back.
pub struct Screen {
    /// The modes to restore; `None` if standard input is no terminal.
    modes: Option<Termios>,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// A terminal that can't be written.
    pub fn enter() -> Result<Self> {
        let modes = tcgetattr(stdin()).ok();
        let screen = Self { modes };
        screen.take_over()?;
        Ok(screen)
    }

    fn take_over(&self) -> Result<()> {
        if let Some(modes) = &self.modes {
            let mut silent = modes.clone();
            // Keys that are typed would appear in the table. Those that send signals still do.
            silent.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
            tcsetattr(stdin(), OptionalActions::Now, &silent)
                .context("cannot set the modes of the terminal")?;
        }
        write(ENTER)
    }

    fn give_back(&self) -> Result<()> {
        let restored = match &self.modes {
            Some(modes) => tcsetattr(stdin(), OptionalActions::Now, modes),
            None => Ok(()),
        };
        write(LEAVE)?;
        restored.context("cannot restore the modes of the terminal")
    }

    /// Draws the lines of a frame over those of the last one.
    ///
    /// # Errors
    /// A terminal that can't be written.
    pub fn draw(&mut self, frame: impl FnOnce(Size) -> Vec<String>) -> Result<()> {
        let lines = frame(size()).join(&format!("{ERASE_REST_OF_LINE}\r\n"));
        write(&format!(
            "{HOME}{lines}{ERASE_REST_OF_LINE}{ERASE_REST_OF_SCREEN}"
        ))
    }

    /// Gives the terminal back until the program continues.
    ///
    /// # Errors
    /// A terminal that can't be used.
    pub fn stop(&mut self) -> Result<()> {
        self.give_back()?;
        stop()?;
        self.take_over()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        _ = self.give_back();
    }
}

/// Stops the program until it is continued.
///
/// # Errors
/// The operating system refuses.
pub fn stop() -> Result<()> {
    kill_process(getpid(), Signal::STOP).context("cannot stop")
}

fn size() -> Size {
    match tcgetwinsize(stdout()) {
        Ok(found) if found.ws_col > 0 && found.ws_row > 0 => Size {
            columns: usize::from(found.ws_col),
            lines: usize::from(found.ws_row),
        },
        _ => USUAL,
    }
}

fn write(text: &str) -> Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to the terminal")
}
