//! State icons, drawn as inline SVG, and the marks for a lock, the theme and a chevron. Owns the
//! shape and colour of each.
//!
//! Does not use emoji, because a machine without their font shows boxes. Invariant: two states that
//! mean different things differ in shape, because some readers cannot rely on colour.

use maud::{Markup, html};
use moongate_api::ItemState;
use moongate_model::{CallState, UpstreamState};

/// Colour and shape of a state.
#[derive(Clone, Copy)]
pub(super) struct StateIcon {
    pub(super) color: &'static str,
    shape: IconShape,
}

#[derive(Clone, Copy)]
enum IconShape {
    Disc,
    HalfDisc,
    Triangle,
    Lock,
    Cross,
    Ring,
    Check,
    Turning,
}

impl StateIcon {
    /// Returns the icon of a server's state.
    pub(super) fn of_server(state: UpstreamState) -> Self {
        let (color, shape) = match state {
            UpstreamState::Ready => ("green", IconShape::Disc),
            UpstreamState::Starting => ("orange", IconShape::HalfDisc),
            UpstreamState::Degraded | UpstreamState::BackingOff => ("orange", IconShape::Triangle),
            UpstreamState::NeedsLogin => ("orange", IconShape::Lock),
            UpstreamState::Failed => ("red", IconShape::Cross),
            UpstreamState::Stopped | UpstreamState::Disabled => ("grey", IconShape::Ring),
        };
        StateIcon { color, shape }
    }

    /// Returns the icon of a call's state.
    pub(super) fn of_call(state: CallState) -> Self {
        let (color, shape) = match state {
            CallState::Ok => ("green", IconShape::Check),
            CallState::Running => ("orange", IconShape::Turning),
            CallState::InputRequired => ("orange", IconShape::HalfDisc),
            CallState::ToolError => ("orange", IconShape::Triangle),
            CallState::Error => ("red", IconShape::Cross),
            CallState::Cancelled => ("grey", IconShape::Ring),
        };
        StateIcon { color, shape }
    }

    /// Returns the icon of a tool's state.
    pub(super) fn of_tool(state: ItemState) -> Self {
        let (color, shape) = match state {
            ItemState::On => ("green", IconShape::Check),
            ItemState::LeftOut => ("orange", IconShape::Triangle),
            ItemState::Hidden => ("grey", IconShape::HalfDisc),
            ItemState::Off => ("grey", IconShape::Ring),
        };
        StateIcon { color, shape }
    }

    /// Draws it. The text next to it names the state.
    pub(super) fn draw(self) -> Markup {
        html! {
            svg class=(format!("dot {}",
                self.color)) viewBox="0 0 16 16" aria-hidden="true" focusable="false" {
                @match self.shape {
                    IconShape::Disc => { circle cx="8" cy="8" r="6" fill="currentColor" {} }
                    IconShape::HalfDisc => {
                        circle cx="8" cy="8" r="5.25" fill="none" stroke="currentColor" stroke-width="1.5" {}
                        path d="M8 2a6 6 0 0 1 0 12z" fill="currentColor" {}
                    }
                    IconShape::Triangle => { path d="M8 2 14.5 13.5h-13z" fill="currentColor" {} }
                    IconShape::Lock => {
                        rect x="3" y="7" width="10" height="7" rx="1.5" fill="currentColor" {}
                        path d="M5 7V5a3 3 0 0 \
                                1 6 0v2" fill="none" stroke="currentColor" stroke-width="1.6" {}
                    }
                    IconShape::Cross => {
                        path d="M3 3l10 10M13 \
                                3 3 \
                                13" fill="none" stroke="currentColor" stroke-width="2.4" stroke-linecap="round" {}
                    }
                    IconShape::Ring => {
                        circle cx="8" cy="8" r="5.25" fill="none" stroke="currentColor" stroke-width="1.5" {} }
                    IconShape::Check => {
                        path d="M2.5 8.5 6.5 12.5 \
                                13.5 4" fill="none" stroke="currentColor" stroke-width="2.2"
                            stroke-linecap="round" stroke-linejoin="round" {}
                    }
                    IconShape::Turning => {
                        path d="M8 2.5a5.5 5.5 0 1 0 \
                                5.5 \
                                5.5" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" {}
                    }
                }
            }
        }
    }
}

/// Draws the mark of a tool that a pattern keeps off.
pub(super) fn draw_lock() -> Markup {
    StateIcon {
        color: "grey",
        shape: IconShape::Lock,
    }
    .draw()
}

/// Draws the mark of the button that changes the colours.
pub(super) fn draw_theme() -> Markup {
    StateIcon {
        color: "",
        shape: IconShape::HalfDisc,
    }
    .draw()
}

/// Draws the mark of a card that opens or closes.
pub(super) fn draw_chevron(is_open: bool) -> Markup {
    let path = if is_open {
        "M3 10.5 8 5.5l5 5"
    } else {
        "M3 5.5 8 10.5l5-5"
    };
    html! {
        svg class="chev" viewBox="0 0 16 16" aria-hidden="true" focusable="false" {
            path d=(path) fill="none" stroke="currentColor" stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round" {}
        }
    }
}
