(class_declaration name: (identifier) @name) @class
(class_declaration name: (identifier) @name (base_list [(identifier) @super (generic_name (identifier) @super) (qualified_name name: (identifier) @super)])) @class
(record_declaration name: (identifier) @name) @class
(record_declaration name: (identifier) @name (base_list [(identifier) @super (generic_name (identifier) @super)])) @class
(struct_declaration name: (identifier) @name) @struct
(struct_declaration name: (identifier) @name (base_list [(identifier) @super (generic_name (identifier) @super)])) @struct
(interface_declaration name: (identifier) @name) @interface
(interface_declaration name: (identifier) @name (base_list [(identifier) @super (generic_name (identifier) @super)])) @interface
(enum_declaration name: (identifier) @name) @enum
(enum_member_declaration name: (identifier) @name) @constant
(namespace_declaration name: [(identifier) (qualified_name)] @name) @namespace
(file_scoped_namespace_declaration name: [(identifier) (qualified_name)] @name) @namespace
(method_declaration name: (identifier) @name) @method
(constructor_declaration name: (identifier) @name) @constructor
(property_declaration name: (identifier) @name) @property
(field_declaration (variable_declaration (variable_declarator name: (identifier) @name))) @field
(delegate_declaration name: (identifier) @name) @type
(local_function_statement name: (identifier) @name) @function
(event_field_declaration (variable_declaration (variable_declarator name: (identifier) @name))) @field
(event_declaration name: (identifier) @name) @field
(destructor_declaration name: (identifier) @name) @method
(indexer_declaration "this" @name) @property
