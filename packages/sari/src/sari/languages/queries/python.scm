(class_definition name: (identifier) @name) @class
(class_definition name: (identifier) @name superclasses: (argument_list [(identifier) @super (attribute attribute: (identifier) @super) (subscript value: (identifier) @super) (subscript value: (attribute attribute: (identifier) @super))])) @class
(function_definition name: (identifier) @name) @function
(module (assignment left: (identifier) @name) @variable)
(class_definition body: (block (assignment left: (identifier) @name) @field))
(type_alias_statement left: (type (identifier) @name)) @type
