//! Page for operators: HTML of the admin API's objects, and the scripts that make it live. Owns
//! views and files.
//!
//! Does not compute what it shows, and knows neither requests nor the gateway. Invariant: a
//! fragment is rendered by the function that the whole page calls.

pub mod add;
pub mod assets;
pub mod banners;
mod buttons;
pub mod calls;
mod config_location;
pub mod connect;
pub mod context;
mod copy;
mod differing_rows;
pub mod endpoint_choice;
pub mod explain;
mod first_steps;
mod form;
pub mod frame;
mod icons;
pub mod keys;
pub mod people;
pub mod preview;
mod server_login;
pub mod server_tabs;
pub mod servers;
pub mod sessions;
mod settings_tab;
mod shell_line;
pub mod sign_in;
mod state_groups;
mod switch;
#[cfg(test)]
mod tests;
mod text;
mod tool_row;
pub mod tools;
pub mod try_it;
mod unmatched_rules;
pub mod view_query;
