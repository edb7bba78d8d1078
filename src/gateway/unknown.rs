//! Calls of names that are in no list: they may be newer than the list.
//!
//! Owns which servers are listed once more for a name, and the second look at the table. Does not decide whose a name is:
//! the table does. Invariant: a name that may not be used takes the same way and time as one that does not exist.

use std::sync::Arc;

use futures_util::future::join_all;

use crate::gateway::generation::Member;
use crate::gateway::view::{Refused, Scope, View};
use crate::json::Text;
use crate::model::{Call, Caller, Exchange, Kind, Method};

impl View {
    /// Has the servers that may have a name listed once more, and calls it if it is there by then.
    pub(super) fn call_unknown(&self, caller: &Arc<Caller>, refused: Box<Refused>) -> Exchange {
        let Refused { error, call, asked } = *refused;
        let found = call.and_then(|call| Some((self.may_have(&call)?, call)));
        let Some(((kind, servers), call)) = found else { return self.answer(caller, asked, Err(error)) };
        let (view, caller) = (self.again(), caller.clone());
        Exchange::later(async move {
            let before: Vec<_> = servers.iter().map(|server| server.items()).collect();
            join_all(servers.iter().map(|server| server.look_again(kind))).await;
            let is_same = servers.iter().zip(&before).all(|(server, before)| Arc::ptr_eq(&server.items(), before));
            if is_same {
                return view.answer(&caller, asked, Err(error));
            }
            view.gateway.rebuild();
            match view.route(&caller, *call, asked) {
                Ok(routed) => view.run(&caller, routed),
                Err(refused) => view.answer(&caller, refused.asked, Err(refused.error)),
            }
        })
    }

    /// The servers that a name could be of, by their prefixes; `None`: there is none.
    fn may_have(&self, call: &Call) -> Option<(Kind, Vec<Arc<Member>>)> {
        let kind = match call.method {
            Method::CallTool => Kind::Tools,
            Method::GetPrompt => Kind::Prompts,
            _ => return None,
        };
        let name = call.params.text("name")?;
        let is_one = |server: &&Arc<Member>| self.includes(&server.name) && self.could_be_of(&name, server);
        let servers: Vec<Arc<Member>> = self.now.servers.iter().filter(is_one).cloned().collect();
        (!servers.is_empty()).then_some((kind, servers))
    }

    fn could_be_of(&self, name: &Text, server: &Member) -> bool {
        let rest = match self.scope {
            Scope::Server(_) => return true,
            _ => name.strip_prefix(&*server.settings.prefix),
        };
        server.settings.prefix.is_empty() || rest.is_some_and(|rest| rest.starts_with(&self.now.names.separator))
    }
}
