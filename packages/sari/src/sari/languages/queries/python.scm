(class_definition name: (identifier) @name) @class
(class_definition name: (identifier) @name superclasses: (argument_list [(identifier) @super (attribute attribute: (identifier) @super) (subscript value: (identifier) @super) (subscript value: (attribute attribute: (identifier) @super))])) @class
(function_definition name: (identifier) @name) @function
(module (assignment left: (identifier) @name) @variable)
(class_definition body: (block (assignment left: (identifier) @name) @field))
(type_alias_statement left: (type (identifier) @name)) @type
(module (assignment left: (pattern_list (identifier) @name)) @variable)
(module (if_statement (block (assignment left: (identifier) @name) @variable)))
(module (if_statement (else_clause (block (assignment left: (identifier) @name) @variable))))
(module (try_statement (block (assignment left: (identifier) @name) @variable)))
(module (try_statement (except_clause (block (assignment left: (identifier) @name) @variable))))
(class_definition body: (block (assignment left: (pattern_list (identifier) @name)) @field))
