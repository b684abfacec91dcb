"""Tables on a cluster: from the user's collections to presorted columns on workers."""
