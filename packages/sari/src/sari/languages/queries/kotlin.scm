(class_declaration (type_identifier) @name) @class
(class_declaration (type_identifier) @name (delegation_specifier [(user_type (type_identifier) @super) (constructor_invocation (user_type (type_identifier) @super))])) @class
(class_declaration "interface" (type_identifier) @name) @interface
(class_declaration "enum" (type_identifier) @name) @enum
(enum_entry (simple_identifier) @name) @constant
(object_declaration (type_identifier) @name) @class
(object_declaration (type_identifier) @name (delegation_specifier [(user_type (type_identifier) @super) (constructor_invocation (user_type (type_identifier) @super))])) @class
(function_declaration (simple_identifier) @name) @function
(type_alias (type_identifier) @name) @type
(source_file (property_declaration (variable_declaration (simple_identifier) @name)) @variable)
(class_body (property_declaration (variable_declaration (simple_identifier) @name)) @property)
(class_parameter (binding_pattern_kind) (simple_identifier) @name) @property
(enum_class_body (property_declaration (variable_declaration (simple_identifier) @name)) @property)
(source_file (property_declaration (multi_variable_declaration (variable_declaration (simple_identifier) @name))) @variable)
(companion_object (type_identifier) @name) @class
(secondary_constructor "constructor" @name) @constructor
